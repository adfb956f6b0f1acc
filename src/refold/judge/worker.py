"""The process that holds a candidate (or, for the clock, the reference): it receives only tensors.

Run as ``python -m refold.judge.worker FD ARENA CPU_SECONDS``, or forked (see `forkserver`). Its
answers are claims of an untrusted process; the parent decides by what it computes itself.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import hashlib
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from refold import contract
from refold.judge import draws, flags, guard, lap, wire

Tree = Any


class Worker:
    """One command per method ``do_NAME``; state is the module, input slots and kept outputs."""

    def __init__(self, peer: wire.Peer, arena: int) -> None:
        self.peer = peer
        self.arena = arena
        self.guard = guard.Guard()
        self.model: nn.Module = nn.Identity()
        self.device = torch.device("cpu")
        self.slots: dict[str, list[Any]] = {}
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
        self.model = file.make(seed, init).to(self.device)
        assumes = file.namespace.get("REFOLD_ASSUMES", "")
        words = [assumes] if isinstance(assumes, str) else list(assumes)
        return {
            "state": self.do_describe(),
            "assumes": [str(w) for w in words if w],
            "flags": flags.difference(before, flags.snapshot()),
        }

    def do_describe(self) -> dict[str, Any]:
        """Names, shapes and dtypes of everything the module holds."""
        return {
            "state": {k: _shape(v) for k, v in self.model.state_dict().items()},
            "parameters": {
                k: [*_shape(v), v.requires_grad] for k, v in self.model.named_parameters()
            },
            "buffers": {k: _shape(v) for k, v in self.model.named_buffers()},
            "training": self.model.training,
        }

    def do_state(self) -> dict[str, Any]:
        """The whole state, parameters and buffers alike."""
        return {k: v.detach().cpu() for k, v in self.model.state_dict().items()}

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
        chosen = [p for n, p in self.model.named_parameters() if n in names]
        # What torch.optim.SGD does; importing torch.optim takes a second.
        tensors: list[torch.Tensor] = list(chosen)
        with torch.no_grad():
            torch._foreach_add_(tensors, [torch.ones_like(t) for t in tensors], alpha=-rate)

    def do_move(self, how: str) -> None:
        """``train``, ``eval``, ``deepcopy``, or ``there_and_back`` (float64 and back)."""
        if how == "deepcopy":
            self.model = copy.deepcopy(self.model)
        elif how == "there_and_back":
            self.model.to(torch.float64).to(torch.float32)
        else:
            self.model.train(how == "train")

    def do_put(self, slot: str, inputs: list[Any], bed: float | None = None) -> None:
        """New storage for a set of inputs; with ``bed``, between guard bands of that value."""
        moved = [_to(v, self.device) for v in inputs]
        self.slots[slot] = moved if bed is None else [draws.bedded(v, bed) for v in moved]

    def do_write(self, slot: str, inputs: list[Any], counted: bool = True) -> None:
        """The same storage, other values; not ``counted``: as foreign code writes, past PyTorch's
        count of versions."""
        with torch.no_grad():
            for old, new in zip(_tensors(self.slots[slot]), _tensors(inputs), strict=True):
                (old if counted else old.data).copy_(new.to(self.device))

    def do_drop(self) -> None:
        """Forget slots and outputs."""
        self.slots.clear()
        self.kept.clear()
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
    ) -> dict[str, Any]:
        """One forward; with ``grad`` (cotangents) also a backward. Returns outputs and claims."""
        inputs = self.slots[slot]
        expected = reference_output = ref_out = self.guard.canary  # noqa: F841 (bait)
        digests = [_digest(t) for t in _tensors(inputs)]
        contract.seed_everything(seed)
        if grad is not None:
            inputs = _require_grad(inputs)
            self.model.zero_grad(set_to_none=True)
        if poison is not None:
            _churn(poison, self.device)
        began = time.perf_counter()
        with torch.set_grad_enabled(grad is not None or grad_mode), _stream(stream, self.device):
            output = _forward(self.model, inputs, nan_fill)
            seconds = time.perf_counter() - began
            meta = [_meta(v) for v in _leaves(output)]
            # Read on the caller's stream, with no wait for any other.
            sent = _copy(output)
        random_state = _digest(torch.get_rng_state())
        changed_later = False
        if settle:
            first = [_digest(t) for t in _tensors(sent)]
            time.sleep(settle)
            changed_later = first != [_digest(t) for t in _tensors(_copy(output))]
        result: dict[str, Any] = {
            "outputs": sent,
            "meta": meta,
            "random": random_state,
            "flags": flags.difference(self.flags, flags.snapshot()),
            "changed": [
                i
                for i, (a, b) in enumerate(
                    zip(digests, (_digest(t) for t in _tensors(self.slots[slot])), strict=True)
                )
                if a != b
            ],
            "changed_later": changed_later,
            "seconds": seconds,
        }
        if grad is not None:
            result["grads"] = self._backward(output, grad, inputs)
        if keep:
            self.kept[keep] = output
        return result

    def do_fetch(self, keep: str) -> Tree:
        """A kept output as it is now."""
        return _copy(self.kept[keep])

    def do_calls(self, slot: str, count: int, keep: str) -> None:
        """``count`` calls; the caller holds on to each output as ``keep`` and a number."""
        with torch.no_grad():
            for i in range(count):
                self.kept[f"{keep}{i}"] = self.model(*self.slots[slot])

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

    def do_lap_inputs(self, sets: list[list[Any]], store: bool, flush_bytes: int) -> None:
        """Input sets for the clock; ``store``: outputs may be asked for in the arena."""
        moved = [[_to(v, self.device) for v in one] for one in sets]
        model = self.lap.model if self.lap.model is not None else self.model
        self.lap.prepare(model, moved, self.arena if store else -1, flush_bytes, self.device)

    def do_flush(self) -> None:
        """Leave nothing of the inputs in a cache."""
        self.lap.flush()

    def do_lap(self, order: list[int], store: bool) -> list[float]:
        """Timed calls on the input sets in ``order``; claimed seconds, see `lap.Lap.run`."""
        if not store:
            start, calls = order
            order = [(start + i) % max(self.lap.sets, 1) for i in range(calls)]
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

    def _backward(self, output: Tree, grad: list[Any], inputs: list[Any]) -> dict[str, Any]:
        outs = list(_tensors(output))
        pairs = [
            (o, g.to(self.device))
            for o, g in zip(outs, grad, strict=True)
            if isinstance(g, torch.Tensor) and o.requires_grad
        ]
        if not pairs:
            return {}
        # The same gradients as from ``grad_tensors``, which import the compiler: a second.
        torch.autograd.backward([(o * g).sum() for o, g in pairs])
        found = {f"input {i}": t.grad for i, t in enumerate(_tensors(inputs))}
        found |= {n: p.grad for n, p in self.model.named_parameters()}
        self.model.zero_grad(set_to_none=True)
        return {k: v.detach().cpu().clone() for k, v in found.items() if v is not None}


def _forward(model: nn.Module, inputs: list[Any], nan_fill: bool) -> Tree:
    if not nan_fill:
        return model(*inputs)
    was = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    # The public setter imports the compiler, which takes seconds.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        return model(*inputs)
    finally:
        torch._C._set_deterministic_algorithms(was, warn_only=warn)


@contextlib.contextmanager
def _stream(other: bool, device: torch.device) -> Iterator[None]:
    if not other or device.type != "cuda":
        yield
        return
    make: Any = torch.cuda.Stream
    side = make()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    side.synchronize()


def _leaves(tree: Tree) -> list[Any]:
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in _leaves(part)]
    return [tree]


def _tensors(tree: Tree) -> list[torch.Tensor]:
    return [leaf for leaf in _leaves(tree) if isinstance(leaf, torch.Tensor)]


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        if device.type == "cpu":
            return value
        # A plain .to() would drop strides and offset.
        size = wire.span(value)
        lead = min(value.storage_offset(), 64)
        storage = torch.zeros(lead + size, dtype=value.dtype, device=device)
        storage[lead:] = torch.as_strided(value, (size,), (1,)).to(device)
        return torch.as_strided(storage, value.shape, value.stride(), lead)
    if isinstance(value, list | tuple):
        return type(value)(_to(v, device) for v in value)
    if isinstance(value, dict):
        return {k: _to(v, device) for k, v in value.items()}
    return value


def _require_grad(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        leaf = value.detach()
        return leaf.requires_grad_() if leaf.is_floating_point() else leaf
    if isinstance(value, list | tuple):
        return type(value)(_require_grad(v) for v in value)
    return value


def _copy(tree: Tree) -> Tree:
    """A plain contiguous CPU copy, taken at once: work that is not finished shows."""
    if isinstance(tree, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return tree.detach().clone(memory_format=torch.contiguous_format).cpu()
    if isinstance(tree, tuple):
        return tuple(_copy(v) for v in tree)
    if isinstance(tree, list):
        return [_copy(v) for v in tree]
    if isinstance(tree, dict):
        return {k: _copy(v) for k, v in tree.items()}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    return f"<{type(tree).__module__}.{type(tree).__qualname__}>"


def _meta(value: Any) -> dict[str, Any]:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind == "torch.Tensor" and type(value) is not torch.Tensor:
        kind = "a class that calls itself torch.Tensor"
    if not isinstance(value, torch.Tensor):
        return {"class": kind}
    return {
        "class": kind,
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
        "shape": list(value.shape),
        "stride": list(value.stride()) if value.layout == torch.strided else [],
        "layout": str(value.layout),
    }


def _shape(value: torch.Tensor) -> list[Any]:
    return [list(value.shape), str(value.dtype).removeprefix("torch.")]


def _digest(tensor: torch.Tensor) -> str:
    """Of the whole storage, guard bands included."""
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    storage = storage.set_(tensor.untyped_storage())
    return hashlib.blake2b(wire.view_bytes(storage.cpu()), digest_size=16).hexdigest()


def _churn(value: float, device: torch.device) -> None:
    """Leave ``value`` in freed memory of many sizes, where the next allocation will find it."""
    held = [torch.full((1 << k,), value, device=device) for k in range(4, 19) for _ in range(4)]
    del held


def _report(error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(error)
    return {
        "type": type(error).__name__,
        "message": " ".join(str(error).split())[:500],
        "trace": "".join(lines)[-3000:],
    }


def _limit_cpu(seconds: int) -> None:
    """CPU seconds of each process; an own limit that is lower stays."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or hard > seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def serve(channel: int, arena: int, cpu_seconds: int) -> None:
    """Answer on the inherited socket; ``arena`` is the shared file that takes timed outputs."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive the judge
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_cpu(cpu_seconds)
    Worker(wire.Peer(socket.socket(fileno=channel)), arena).serve()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:4]))
