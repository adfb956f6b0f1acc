"""The commands that a worker answers: one method of `Worker` for each."""

from __future__ import annotations

import copy
import functools
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from refold import contract
from refold.judge import draws
from refold.judge.wire import frames
from refold.judge.worker import flags, guard, lap, sandbox
from refold.judge.worker.builds import Builds
from refold.judge.worker.calls import LARGE, Calls, trim
from refold.judge.worker.leaves import (
    digest,
    load,
    moved,
    parameters,
    place,
    registered,
    shape,
    state_of,
    tied,
)
from refold.judge.worker.steps import Interpreter

Tree = Any


class Worker(Calls):
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
        switches: dict[str, Any] | None = None,
        numbers: str | None = None,
    ) -> dict[str, Any]:
        """Import the file and build the module under the seed. switches: as the reference has them,
        which the file may set, too. numbers: where its import left PyTorch's generator, which the
        file's may, too."""
        self.device = torch.device(device)
        torch.set_num_threads(threads)
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
        if watch:
            self.guard.arm(path)
        self.flags = before = flags.snapshot()
        file, moved = flags.imported(
            lambda: contract.load(path, sets, class_name, needs_inputs=False, unknown_sets="ignore")
        )
        self.make = Builds(
            lambda given: file.make(seed, init if given is None else given).to(self.device)
        )
        self.model = self.make()
        left = digest(torch.get_rng_state())
        self.built = {name: m.training for name, m in self.model.named_modules()}
        after = flags.snapshot()
        before |= {k: v for k, v in (switches or {}).items() if after[k] == v}
        drawn = moved not in (None, numbers)
        hushed = after[flags.HUSHED] > before[flags.HUSHED]
        before[flags.HUSHED] = after[flags.HUSHED]  # told by itself; from now on none may follow
        assumes = file.namespace.get("REFOLD_ASSUMES", "")
        words = list(assumes) if isinstance(assumes, list | tuple | set) else [assumes]
        return {
            "state": self.do_describe(),
            "assumes": [str(w) for w in words if w],
            "flags": flags.difference(before, after) + [flags.DRAWN] * drawn,
            "hushed": hushed,
            "generator": left,
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
        told = state_of(self.model).items()
        return {k: lying[k] if k in lying else v.detach().cpu() for k, v in told}

    def do_load_state(
        self,
        state: dict[str, torch.Tensor],
        how: str,
        unsaved: dict[str, torch.Tensor] | None = None,
    ) -> None:
        """Bring a state in: ``strict``, ``inplace``, ``assign`` (new tensors). unsaved: the
        reference's buffers that no state holds; of them the module may have others."""
        self._put_back(unsaved or {})
        _shaped_again(self.model, state)
        if how == "inplace":
            own = self.model.state_dict(keep_vars=True)
            with torch.no_grad():
                for name, value in state.items():
                    own[name].copy_(value.to(self.device))
        else:
            load(self.model, state, assign=how == "assign")
            self.model.to(self.device)

    def _put_back(self, buffers: dict[str, torch.Tensor]) -> None:
        held = dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in buffers.items():
                now, then = held.get(name), value.to(self.device)
                if now is None or (now.shape, now.dtype) != (then.shape, then.dtype):
                    continue
                if not torch.equal(now, then):  # what is as it was is not written
                    now.copy_(then)

    def do_step(self, names: list[str], rate: float) -> None:
        """One SGD step against all-ones gradients: what training does to the weights."""
        chosen = {id(p): p for n, p in parameters(self.model).items() if n in names}
        # What torch.optim.SGD does; importing torch.optim takes a second.
        held = list(chosen.values())
        with torch.no_grad():
            torch._foreach_add_(held, [torch.ones_like(t) for t in held], alpha=-rate)

    def do_move(self, how: str) -> None:
        """``train``, ``eval``, ``thaw`` (all parts train), ``deepcopy``, ``original`` (of the
        copy), ``there_and_back`` (float64 and back), or the weights laid in one of the ways of
        `draws.LAID`."""
        if how == "deepcopy":
            self.original, self.model = self.model, copy.deepcopy(self.model)
        elif how == "original":
            self.model = self.original
        elif how == "there_and_back":
            self.model.to(torch.float64).to(torch.float32)
        elif how in draws.LAID:
            for p in self.model.parameters():  # as Module.to() does
                p.data = draws.LAID[how](p.data)
        elif how == "thaw":
            self.model.train()
        else:
            self.model.train(how == "train")
            if self.model.training == self.built[""]:  # as it was built, parts frozen
                for name, module in self.model.named_modules():
                    module.training = self.built.get(name, module.training)

    def do_hold(self, states: dict[str, dict[str, torch.Tensor]], inputs: dict[str, Any]) -> None:
        """States and inputs of lives to come, by name."""
        self.states.update(states)
        self.inputs.update(inputs)

    def do_live(self, steps: list[Any], seed: int, anew: bool, alone: bool) -> dict[str, Any]:
        """One life of a new module; see `steps.Interpreter`. ``anew``: no copy of one; ``alone``:
        by one of PyTorch's threads."""
        make = functools.partial(self.make, anew=True) if anew else self.make
        before = torch.get_num_threads()
        try:
            if alone:
                torch.set_num_threads(1)
            answer = Interpreter(make, self.states, self.inputs, seed, self.device).run(steps)
        finally:
            if alone:
                torch.set_num_threads(before)
        if self.device.type == "cpu" and sum(t.nbytes for t in self.model.parameters()) > LARGE:
            trim(0)  # the allocator keeps what is freed, for the clock's sake
        return answer

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
        here = draws.every(moved(outputs, self.device), lambda t: t.contiguous())
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


def _shaped_again(model: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Room for buffers in the place of which a call has put tensors of another shape, or whose
    elements share their memory."""
    for name, held in list(model.named_buffers()):
        over = any(n > 1 and not s for n, s in zip(held.shape, held.stride(), strict=True))
        if name in state and (over or state[name].shape != held.shape):
            path, _, leaf = name.rpartition(".")
            room = torch.empty(state[name].shape, dtype=held.dtype, device=held.device)
            model.get_submodule(path)._buffers[leaf] = room


def _report(error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(error)
    return {
        "type": type(error).__name__,
        "message": " ".join(str(error).split())[:500],
        "trace": "".join(lines)[-3000:],
    }
