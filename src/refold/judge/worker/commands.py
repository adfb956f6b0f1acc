"""The commands that a worker answers: one method of `Worker` for each."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import gc
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from refold import contract
from refold.judge import draws
from refold.judge.wire import frames
from refold.judge.worker import backward, environment, flags, guard, lap, sandbox
from refold.judge.worker.builds import Builds
from refold.judge.worker.leaves import (
    copied,
    digest,
    leaves,
    meta,
    moved,
    other_generators,
    parameters,
    place,
    registered,
    require_grad,
    shape,
    storage,
    tensors,
    tied,
)
from refold.judge.worker.steps import Interpreter

Tree = Any
_LARGE = 32 << 20  # bytes of a call's outputs
_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # of the GNU C library


class Worker:
    """One command per method ``do_NAME``; state is the module, input slots and kept outputs."""

    def __init__(self, peer: frames.Peer, arena: int, watch: guard.Guard | None = None) -> None:
        self.peer = peer
        self.arena = arena
        self.guard = watch or guard.Guard()
        self.model: nn.Module = nn.Identity()
        self.original: nn.Module = self.model
        self.built = {"": True}  # the modes of its modules by name
        self.device = torch.device("cpu")
        self.peer.place = lambda size: place(self.device, size)
        self.slots: dict[str, list[Any]] = {}
        self.states: dict[str, dict[str, torch.Tensor]] = {}  # of lives
        self.inputs: dict[str, list[Any]] = {}
        self.make: Callable[..., nn.Module] = Builds(lambda _: nn.Identity())
        self.kept: dict[str, Tree] = {}
        self.lap = lap.Lap()
        self.flags = flags.snapshot()

    def serve(self) -> None:
        """Answer until the parent hangs up."""
        while True:
            try:
                request = self.peer.receive()
            except EOFError:
                return
            handler: Callable[..., Any] = getattr(self, "do_" + request.pop("do"))
            try:
                answer = {"ok": handler(**request)}
            except (Exception, SystemExit) as error:
                answer = {"error": _report(error)}
            self.peer.send(answer)

    def do_sandbox(self, folder: str, device: str) -> list[str]:
        """See `sandbox.enter`; what could not be done."""
        if torch.device(device).type == "cuda":
            torch.zeros(1, device=device)  # the driver opens what it needs
        return sandbox.enter(folder)

    def do_load(
        self,
        path: str,
        class_name: str,
        sets: dict[str, Any],
        init: list[Any],
        seed: int,
        device: str,
        threads: int,
        watch: bool,
    ) -> dict[str, Any]:
        """Import the file and build the module under the seed."""
        self.device = torch.device(device)
        torch.set_num_threads(threads)
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
        if watch:
            self.guard.arm(path)
        self.flags = before = flags.snapshot()
        file = contract.load(path, sets, class_name, needs_inputs=False, unknown_sets="ignore")
        self.make = Builds(
            lambda given: file.make(seed, init if given is None else given).to(self.device)
        )
        self.model = self.make()
        self.built = {name: m.training for name, m in self.model.named_modules()}
        assumes = file.namespace.get("REFOLD_ASSUMES", "")
        words = list(assumes) if isinstance(assumes, list | tuple | set) else [assumes]
        return {
            "state": self.do_describe(),
            "assumes": [str(w) for w in words if w],
            "flags": flags.difference(before, flags.snapshot()),
        }

    def take(self, make: Callable[..., nn.Module], device: torch.device) -> None:
        """Modules of this process instead of a file's."""
        self.device, self.make = device, Builds(lambda _: make())
        self.model = self.make()
        self.built = {name: m.training for name, m in self.model.named_modules()}

    def do_describe(self) -> dict[str, Any]:
        """Names, shapes and dtypes of everything the module holds."""
        return {
            "state": {k: shape(v) for k, v in self.model.state_dict().items()},
            "parameters": {
                k: [*shape(v), v.requires_grad] for k, v in parameters(self.model).items()
            },
            "tied": tied(self.model),
            "buffers": {k: shape(v) for k, v in self.model.named_buffers()},
            "training": self.model.training,
        }

    def do_state(self) -> dict[str, Any]:
        """The whole state, parameters and buffers alike."""
        # What lies in the modules counts, and is read first: `state_dict` may be the candidate's.
        lying = {k: v.detach().to("cpu", copy=True) for k, v in registered(self.model).items()}
        told = self.model.state_dict().items()
        return {k: lying[k] if k in lying else v.detach().cpu() for k, v in told}

    def do_load_state(self, state: dict[str, torch.Tensor], how: str) -> None:
        """Bring a state in: ``strict``, ``inplace``, ``assign`` (new tensors)."""
        if how == "inplace":
            own = self.model.state_dict(keep_vars=True)
            with torch.no_grad():
                for name, value in state.items():
                    own[name].copy_(value.to(self.device))
        else:
            self.model.load_state_dict(state, strict=True, assign=how == "assign")
            self.model.to(self.device)

    def do_step(self, names: list[str], rate: float) -> None:
        """One SGD step against all-ones gradients: what training does to the weights."""
        chosen = {id(p): p for n, p in parameters(self.model).items() if n in names}
        # What torch.optim.SGD does; importing torch.optim takes a second.
        held = list(chosen.values())
        with torch.no_grad():
            torch._foreach_add_(held, [torch.ones_like(t) for t in held], alpha=-rate)

    def do_move(self, how: str) -> None:
        """``train``, ``eval``, ``thaw`` (all parts train), ``deepcopy``, ``original`` (of the
        copy), ``there_and_back`` (float64 and back), or the weights' ``strides``, ``contiguous``
        again."""
        if how == "deepcopy":
            self.original, self.model = self.model, copy.deepcopy(self.model)
        elif how == "original":
            self.model = self.original
        elif how == "there_and_back":
            self.model.to(torch.float64).to(torch.float32)
        elif how in ("strides", "contiguous"):
            for p in self.model.parameters():  # as Module.to() does
                laid = draws.otherwise_laid(p.data) if how == "strides" else p.data.contiguous()
                p.data = laid
        elif how == "thaw":
            self.model.train()
        else:
            self.model.train(how == "train")
            if self.model.training == self.built[""]:  # as it was built, parts frozen
                for name, module in self.model.named_modules():
                    module.training = self.built.get(name, module.training)

    def do_put(
        self, slot: str, inputs: list[Any], bed: float | None = None, first: Sequence[int] = ()
    ) -> None:
        """New storage for a set of inputs; with ``bed``, between guard bands of that value; with
        ``first``, the tensor of that number instead of each."""
        fresh = [moved(v, self.device) for v in inputs]
        fresh = draws.joined(fresh, list(first)) if first else fresh
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
    ) -> dict[str, Any]:
        """One forward; with ``grad`` (cotangents) also a backward, of ``inputs``, ``parameters``
        or ``all``. Returns outputs and claims."""
        inputs = self.slots[slot]
        expected = reference_output = ref_out = self.guard.canary  # noqa: F841 (bait)
        before = [storage(t).clone() for t in tensors(inputs)]
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
            output = environment.forward(self.model, inputs, nan_fill)
            seconds = time.perf_counter() - began
            left = torch.is_grad_enabled()  # the block's end puts it back
            kinds = [meta(v) for v in leaves(output)]
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
            for i, (a, b) in enumerate(zip(before, tensors(self.slots[slot]), strict=True))
            if not torch.equal(a, storage(b))
        ]
        result: dict[str, Any] = {
            "outputs": sent,
            "meta": kinds,
            "random": random_state,
            "others": [a != b and bool(a) for a, b in others],
            "flags": [
                *flags.difference(self.flags, flags.snapshot()),
                *flags.difference({"grad enabled": entered}, {"grad enabled": left}),
            ],
            "changed": changed,
            "written": [copied(tensors(self.slots[slot])[i]) for i in changed],
            "changed_later": changed_later,
            "seconds": seconds,
        }
        if grad is not None:
            result["grads"] = backward.gradients(self.model, output, grad, inputs)
        for parameter in frozen:
            parameter.requires_grad_(True)
        if keep:
            self.kept[keep] = output
        if self.device.type == "cpu" and sum(t.nbytes for t in tensors(sent)) > _LARGE:
            _trim(0)  # the allocator keeps what is freed, for the clock's sake
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

    def do_fetch(self, keep: str) -> Tree:
        """A kept output as it is now."""
        return copied(self.kept[keep])

    def do_calls(self, slot: str, count: int, keep: str) -> None:
        """``count`` calls; the caller holds on to each output as ``keep`` and a number."""
        with torch.no_grad():
            for i in range(count):
                self.kept[f"{keep}{i}"] = self.model(*self.slots[slot])

    def do_fresh_calls(self, slot: str, count: int) -> int:
        """``count`` calls, each on new values in new memory; bytes that the device holds then."""
        with torch.no_grad():
            for i in range(count):
                scale = 1.0 + (i % 64) / 1024
                self.model(*[draws.mapped(v, lambda t, s=scale: t * s) for v in self.slots[slot]])
        gc.collect()
        return torch.cuda.memory_allocated() if self.device.type == "cuda" else 0

    def do_hold(self, states: dict[str, dict[str, torch.Tensor]], inputs: dict[str, Any]) -> None:
        """States and inputs of lives to come, by name."""
        self.states.update(states)
        self.inputs.update(inputs)

    def do_live(self, steps: list[Any], seed: int, anew: bool) -> dict[str, Any]:
        """One life of a new module; see `steps.Interpreter`. ``anew``: no copy of one."""
        make = functools.partial(self.make, anew=True) if anew else self.make
        run = Interpreter(make, self.states, self.inputs, seed, self.device)
        return run.run(steps)

    def do_complaints(self) -> list[str]:
        """See `guard.Guard.complaints`."""
        return self.guard.complaints()

    def do_compile(self, mode: str) -> float:
        """Wrap the module in torch.compile; seconds until its first output on slot ``lap0``."""
        began = time.perf_counter()
        compiled: Any = torch.compile(self.model, mode=mode)
        with torch.no_grad():
            compiled(*self.slots["compile"])
        self.lap.model = compiled
        return time.perf_counter() - began

    def do_lap_inputs(
        self,
        sets: list[list[Any]],
        slot: int,
        flush_bytes: int,
        seed: int | None = None,
        keep: int = 0,
    ) -> None:
        """Input sets for the clock, behind the first ``keep`` that are here; ``slot``: so many
        bytes of the arena take a call's outputs; ``seed``: of each call whose outputs are taken."""
        here = [[moved(v, self.device) for v in one] for one in sets]
        model = self.lap.model if self.lap.model is not None else self.model
        arena = self.arena if slot else -1
        self.lap.prepare(model, here, arena, slot, flush_bytes, self.device, seed, keep)

    def do_null(self, outputs: Any, device: str, threads: int) -> None:
        """A model that computes nothing: what its sealed calls take is the transport."""
        self.device = torch.device(device)
        torch.set_num_threads(threads)
        here = moved(outputs, self.device)
        self.lap.model = lambda *_: here

    def do_sealed(self, like: list[Any], offset: int, seed: int | None) -> int:
        """Calls whose inputs the parent reveals one by one; see `clock.sealed`."""
        return self.lap.sealed(self.peer.sock, like, offset, seed)

    def do_flush(self) -> None:
        """Leave nothing of the inputs in a cache."""
        self.lap.flush()

    def do_lap(self, order: list[int], store: bool) -> list[float]:
        """Timed calls on the input sets in ``order``; claimed seconds, see `lap.Lap.run`."""
        if not store:
            start, calls, among = (*order, self.lap.sets)[:3]
            order = [(start + i) % max(among, 1) for i in range(calls)]
        return self.lap.run(order, store)

    def do_graph(self, calls: int) -> None:
        """Capture ``calls`` calls in one CUDA graph."""
        self.lap.capture(calls)

    def do_replay(self, times: int) -> None:
        """Replay what was captured, and wait for its end."""
        self.lap.replay(times)

    def do_kernels(self) -> list[str]:
        """Names of the CUDA kernels that one call launches, by the profiler."""
        return self.lap.kernels()


def _report(error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(error)
    return {
        "type": type(error).__name__,
        "message": " ".join(str(error).split())[:500],
        "trace": "".join(lines)[-3000:],
    }
