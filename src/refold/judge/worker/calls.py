"""The commands of a worker that are single calls: inputs in slots, what calls leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from refold import contract
from refold.judge import draws
from refold.judge.wire import plain
from refold.judge.worker import backward, environment, flags, guard, looks
from refold.judge.worker.leaves import (
    copied,
    digest,
    form,
    leaves,
    meta,
    moved,
    other_generators,
    require_grad,
    storage,
    tensors,
    versions,
)

Tree = Any
_weak: Any = StorageWeakRef
_TORCH = str(Path(torch.__file__).parent)
LARGE = 32 << 20  # bytes of a call's outputs, or of a state
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # of the GNU C library


class Calls:
    """What `commands.Worker` does with a module, input slots and kept outputs."""

    model: nn.Module
    device: torch.device
    slots: dict[str, list[Any]]
    kept: dict[str, Tree]
    flags: dict[str, Any]
    guard: guard.Guard

    def do_put(
        self,
        slot: str,
        inputs: list[Any],
        bed: float | None = None,
        first: Sequence[int] = (),
        together: str = "",
    ) -> None:
        """New storage for a set of inputs; with ``bed``, between guard bands of that value; with
        ``first``, the tensor of that number instead of each; ``together``: in one memory, in one of
        the ways of `draws.TOGETHER`."""
        fresh = [moved(v, self.device) for v in inputs]
        fresh = draws.joined(fresh, list(first)) if first else fresh
        fresh = draws.TOGETHER[together](fresh) if together else fresh
        self.slots[slot] = fresh if bed is None else [draws.bedded(v, bed) for v in fresh]

    def do_write(self, slot: str, inputs: list[Any], counted: bool = True) -> None:
        """The same storage, other values; not ``counted``: as foreign code writes, past PyTorch's
        count of versions."""
        with torch.no_grad():
            for old, new in zip(tensors(self.slots[slot]), tensors(inputs), strict=True):
                for i, (size, stride) in enumerate(zip(old.shape, old.stride(), strict=True)):
                    if size > 1 and stride == 0:  # an expanded input: one element is there
                        old, new = old.narrow(i, 0, 1), new.narrow(i, 0, 1)
                (old if counted else old.data).copy_(new.to(self.device))

    def do_drop(self) -> None:
        """Forget slots and outputs."""
        self.slots, self.kept = {}, {}
        gc.collect()

    def do_call(
        self,
        slot: str,
        keep: str = "",
        seed: int = 0,
        grad: list[Any] | None = None,
        grad_mode: bool = False,
        poison: float | None = None,
        nan_fill: bool = False,
        stream: bool = False,
        settle: float = 0.0,
        of: str = "all",
        views: bool = False,
    ) -> dict[str, Any]:
        """One forward; with ``grad`` (cotangents) also a backward, of ``inputs``, ``parameters``
        or ``all``; ``views``: of temporaries that nobody else holds, whose memory is the slot's.
        Returns outputs and claims."""
        inputs = self.slots[slot]
        held, forms = tensors(inputs), [form(inputs)]
        counts = versions(held)
        expected = reference_output = ref_out = self.guard.canary  # noqa: F841 (bait)
        before = [storage(t).clone() for t in held]
        contract.seed_everything(seed)
        generators = other_generators()
        if grad is not None:
            inputs = inputs if of == "parameters" else require_grad(inputs)
            self.model.zero_grad(set_to_none=True)
        frozen = [p for p in self.model.parameters() if p.requires_grad and of == "inputs"]
        for parameter in frozen:
            parameter.requires_grad_(False)
        if poison is not None:
            environment.churn(poison, self.device)
        began = time.perf_counter()
        with (
            torch.set_grad_enabled(grad is not None or grad_mode),
            environment.stream(stream, self.device),
        ):
            entered = torch.is_grad_enabled()
            if views:
                output = self.model(*[draws.every(v, lambda t: t[...]) for v in inputs])
            else:
                output = environment.forward(self.model, inputs, nan_fill)
            seconds = time.perf_counter() - began
            left = torch.is_grad_enabled()  # the block's end puts it back
            kinds, shared = (
                [meta(v) for v in leaves(output)],
                looks.shared(output, inputs, self.model),
            )
            # Read on the caller's stream, with no wait for any other.
            sent = copied(output)
            if not (keep or settle or grad is not None):
                output = None  # two of large outputs are held at no time but now
        random_state = digest(torch.get_rng_state())
        others = zip(generators, other_generators(), strict=True)
        changed_later = False
        if settle:
            time.sleep(settle)
            pairs = zip(tensors(sent), tensors(copied(output)), strict=True)
            changed_later = not all(torch.equal(storage(a), storage(b)) for a, b in pairs)
        changed = [
            i
            for i, (a, b) in enumerate(zip(before, held, strict=True))
            if not torch.equal(a, storage(b))
        ]
        forms.append(form(self.slots[slot]))
        result: dict[str, Any] = {
            "outputs": sent,
            "meta": kinds,
            "shared": shared,
            "random": random_state,
            "others": [a != b and bool(a) for a, b in others],
            "changed": changed,
            "written": [copied(held[i]) for i in changed],
            "forms": forms,
            "counted": [a != b for a, b in zip(counts, versions(held), strict=True)],
            "changed_later": changed_later,
            "seconds": seconds,
        }
        if grad is not None:
            given = self.model, output, grad, inputs
            found = backward.gradients(*given)
            result["grads"], result["written by the backward"], result["sparse"] = found
        result["flags"] = [
            *flags.difference(self.flags, flags.snapshot()),
            *flags.difference({"grad enabled": entered}, {"grad enabled": left}),
        ]
        for parameter in frozen:
            parameter.requires_grad_(True)
        if keep:
            self.kept[keep] = output
        if self.device.type == "cpu" and sum(t.nbytes for t in tensors(sent)) > LARGE:
            trim(0)  # the allocator keeps what is freed, for the clock's sake
        return result

    def do_spoil(self, keep: str) -> list[tuple[int, int]]:
        """Write into each output of a kept call; pairs of one that was written and one that
        changed with it."""
        outputs, found = tensors(self.kept.pop(keep))[:16], []
        for i, output in enumerate(outputs):
            before = [o.detach().clone() for o in outputs]
            other = ~output if output.dtype is torch.bool else torch.full_like(output, 77)
            with contextlib.suppress(RuntimeError), torch.no_grad():  # as of an expanded one
                output.detach().copy_(other)
                pairs = zip(before, outputs, strict=True)
                same = [digest(a) == digest(b.detach().clone()) for a, b in pairs]
                found += [(i, j) for j, equal in enumerate(same) if j != i and not equal]
        return found

    def do_views(self, keep: str) -> None:
        """Hold a kept output by views of its tensors alone."""
        self.kept[keep] = _viewed(self.kept[keep])

    def do_held(self, slot: str, count: int, grad: bool) -> int:
        """Of so many calls, whose inputs and outputs all are let go of, how many inputs live on."""
        return held(self.model, self.slots[slot], count, grad)

    def do_warnings(self, slot: str) -> list[list[str]]:
        """What a call warns of; see `warned`."""
        return warned(self.model, self.slots[slot])

    def do_fetch(self, keep: str) -> Tree:
        """A kept output as it is now."""
        return copied(self.kept[keep])

    def do_calls(self, slot: str, count: int, keep: str) -> None:
        """``count`` calls; the caller holds on to each output as ``keep`` and a number."""
        with torch.no_grad():
            for i in range(count):
                self.kept[f"{keep}{i}"] = self.model(*self.slots[slot])

    def do_fresh_calls(self, slot: str, count: int) -> int:
        """``count`` calls, each on new values in new memory; bytes in use then, of the device or of
        the C library's heap: what is resident may have been free before."""
        with torch.no_grad():
            for i in range(count):
                scale = 1.0 + (i % 64) / 1024
                self.model(*[draws.mapped(v, lambda t, s=scale: t * s) for v in self.slots[slot]])
        gc.collect()
        return torch.cuda.memory_allocated() if self.device.type == "cuda" else _in_use()


_NUMBERS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Heap(ctypes.Structure):
    """What ``mallinfo2`` of the GNU C library gives; of 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in _NUMBERS]


def _in_use() -> int:
    """Bytes of the heap that are in use; 0 where nothing tells."""
    info = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if info is None:
        return 0
    info.restype = _Heap
    heap = info()
    return int(heap.uordblks + heap.hblkhd)


def _viewed(tree: Tree) -> Tree:
    """Views in the place of tensors, as who detaches an output holds them."""
    if isinstance(tree, torch.Tensor):
        return tree.detach()[...]
    if isinstance(tree, tuple):
        return tuple(_viewed(v) for v in tree)
    if isinstance(tree, list):
        return [_viewed(v) for v in tree]
    if isinstance(tree, dict):
        return {k: _viewed(v) for k, v in tree.items()}
    return tree if plain.record(tree) is None else plain.refilled(tree, _viewed)


def held(model: nn.Module, inputs: list[Any], count: int, grad: bool) -> int:
    """Of ``count`` calls, whose inputs and outputs all are let go of, how many inputs live on."""
    living = []
    with torch.set_grad_enabled(grad):
        for i in range(count):
            given = [draws.every(v, lambda t: t.clone()) for v in inputs]
            living.append([_weak(t.untyped_storage()) for t in tensors(given)])
            contract.seed_everything(i)
            model(*given)
            del given
    gc.collect()
    return sum(not all(one.expired() for one in call) for call in living)


def warned(model: nn.Module, inputs: list[Any]) -> list[list[str]]:
    """Category and text of what a call warns of by Python's `warnings`, PyTorch's own left out."""
    with warnings.catch_warnings(record=True) as found, torch.no_grad():
        warnings.simplefilter("always")
        model(*inputs)
    own = [w for w in found if not w.filename.startswith(_TORCH)]
    return [[w.category.__name__, str(w.message)] for w in own]
