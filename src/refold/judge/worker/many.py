"""In a life: what is done many times, or by several threads; and calls, modules and tensors that
somebody else has had his hands on before."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from refold.contract import seed_everything
from refold.judge.worker import backward, writes
from refold.judge.worker.leaves import copied, load, registered, tensors
from refold.judge.worker.looks import FACT, GRADS, OUTPUT, Missing
from refold.judge.worker.turns import meetings

Tree = Any
_PASSED = 6.0  # seconds


class _Ended(Exception):
    """Ends a call, or a backward, from within."""


class Many:
    """The steps of `steps.Interpreter` that repeat something, or share it."""

    models: dict[str, nn.Module]
    states: Mapping[str, dict[str, torch.Tensor]]
    given: dict[str, Tree]
    seed: int
    device: torch.device
    parallel: bool
    pool: ThreadPoolExecutor | None
    build: Callable[..., None]
    _given: Callable[..., list[Any]]
    _cast: Callable[..., dict[str, torch.Tensor]]
    _part: Callable[[str, str], nn.Module]
    _still: Callable[[bool], None]
    _see: Callable[[str, str, Tree], None]
    _tensor: Callable[[str, str], torch.Tensor]

    def calls(
        self,
        inputs: list[str],
        count: int,
        model: str = "a",
        grad: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Many forwards, one input after another; nothing is looked at. ``seconds``: they end after
        so many of work, and as they change nothing of the reference, it makes a few only."""
        if seconds and not self.parallel:
            count = min(count, len(inputs))
        over = _ends(seconds or math.inf)
        with torch.set_grad_enabled(grad):
            for i in range(count):
                seed_everything(self.seed + i)
                self.models[model](*self._given(inputs[i % len(inputs)]))
                if over():
                    break

    def gone(self, state: str, count: int, inputs: str, label: str) -> None:
        """Build modules, call each, let go of each; whether all of them live on is seen."""
        living = []
        for _ in range(count):
            self.build(state, "gone")
            with torch.no_grad():
                self.models["gone"](*self._given(inputs))
            living.append(weakref.ref(self.models.pop("gone")))
        gc.collect()
        self._see(label, FACT, all(one() is not None for one in living))

    def interrupt(
        self, inputs: str, path: str = "", names: list[str] | None = None, model: str = "a"
    ) -> None:
        """A call that a hook of a part ends; or the backward of one that hooks of parameters end,
        as somebody's do who finds no numbers there. A part that nobody calls ends nothing."""
        fired: list[bool] = []

        def end(*_: Any) -> None:
            fired.append(True)
            raise _Ended

        module = self.models[model]
        with torch.set_grad_enabled(names is not None):
            if names is None:
                handles = [self._part(path, model).register_forward_hook(end)]
            else:
                held: list[Any] = [self._tensor(n, model) for n in names]
                handles = [t.register_hook(end) for t in held]
            try:
                with contextlib.suppress(Exception):
                    seed_everything(self.seed)
                    output = module(*self._given(inputs))
                    if names is not None:
                        backward.run(output, [], "random", self.seed)
            finally:
                self._still(names is not None)
                for handle in handles:
                    handle.remove()
        if names is None and not fired:
            raise Missing(f"the part {path} is not called")

    def touch(self, of: str) -> None:
        """Write to the inputs of a call, as who fills them for the next one does."""
        held = tensors(self.given[of])
        with torch.inference_mode(any(t.is_inference() for t in held)):
            writes.halve(held)

    def threads(
        self,
        inputs: list[str],
        count: int,
        label: str,
        model: str = "a",
        back: list[str] | None = None,
    ) -> None:
        """``count`` calls in each of several threads, each on inputs of its own; ``back``: and a
        backward of each, by its inputs and these parameters."""
        module = self.models[model]
        found: dict[int, list[Tree]] = {i: [] for i in range(len(inputs))}
        wrong: list[BaseException] = []
        given = {i: self._given(name, back is not None) for i, name in enumerate(inputs)}
        by = [self._tensor(name, model) for name in back or ()]
        together = threading.Barrier(len(inputs))

        def work(i: int) -> None:
            try:
                if self.parallel:
                    together.wait(20)
                with torch.set_grad_enabled(back is not None):
                    for _ in range(count):
                        output = module(*given[i])
                        if back is not None:
                            held = [t for t in tensors(given[i]) if t.requires_grad] + by
                            output = [output, backward.slopes(output, held, self.seed)]
                        found[i].append(copied(output))
            except Exception as error:
                wrong.append(error)

        if not self.parallel:
            for i in found:
                work(i)
        else:
            # the same threads again and again: what a thread keeps is not followed by itself
            self.pool = self.pool or ThreadPoolExecutor(len(found))
            for done in [self.pool.submit(work, i) for i in found]:
                done.result()
        if wrong:
            raise wrong[0]
        for i, outputs in found.items():
            for j, output in enumerate(outputs):
                self._see(f"{label}, thread {i}, call {j}", OUTPUT, output)

    def meet(
        self, inputs: list[str], label: str, model: str = "a", back: list[str] | None = None
    ) -> None:
        """A call on the first inputs by a thread that stops on its way, again and again at other
        places, while another call on the second is made; ``back``: calls and backwards. Of each the
        result that is the farthest from that of a call by itself is seen."""
        module = self.models[model]
        by = [self._tensor(name, model) for name in back or ()]

        def work(name: str) -> Tree:
            given = self._given(name, back is not None)
            with torch.set_grad_enabled(back is not None):
                output = module(*given)
                if back is not None:
                    held = [t for t in tensors(given) if t.requires_grad] + by
                    output = [output, backward.slopes(output, held, self.seed)]
            return copied(output)

        alone = [work(name) for name in inputs]
        seen, most = list(alone), [0.0, 0.0]
        one, other = (functools.partial(work, name) for name in inputs)
        for found in meetings(one, other, self.seed) if self.parallel else ():
            for i, output in enumerate(found):
                far = max(map(_apart, tensors(output), tensors(alone[i])), default=0.0)
                if far > most[i]:
                    seen[i], most[i] = output, far
        for i, word in enumerate(("of the thread that stops", "of the other one")):
            self._see(f"{label} {word}", OUTPUT, seen[i])

    def farthest(
        self,
        inputs: str,
        count: int,
        seconds: float,
        label: str,
        back: list[str] | None = None,
        model: str = "a",
    ) -> None:
        """Many calls on the same inputs, in so many seconds of work; the first result is seen, and
        that which is the farthest from it. ``back``: of the gradients of inputs and of these
        parameters, of many backwards. The reference makes two."""
        module = self.models[model]
        first: Tree = None
        seen: Tree = None
        most = 0.0
        over = _ends(seconds)
        for _ in range(count if self.parallel else 2):
            given = self._given(inputs, back is not None)
            seed_everything(self.seed)
            with torch.set_grad_enabled(back is not None):
                found = module(*given)
            if back is not None:
                backward.run(found, given, "sum", self.seed)
                held = {n: self._tensor(n, model) for n in back}
                held |= {f"input {i}": t for i, t in enumerate(tensors(given))}
                found = {n: t.grad for n, t in held.items()}
                module.zero_grad(set_to_none=True)
            if first is None:
                first = seen = copied(found)
                continue
            if over():
                break
            far = max(map(_apart, tensors(found), tensors(first)), default=0.0)
            if far > most:
                most, seen = far, copied(found)
        kind = OUTPUT if back is None else GRADS
        self._see(f"{label}: the first", kind, first)  # where it is the one that is wrong
        self._see(label, kind, seen)

    def take_away(self, path: str, names: list[str], model: str = "a") -> None:
        """Tensors of a part become None, as a bias does that is folded into what follows."""
        part = self._part(path, model)
        for name in names:
            if getattr(part, name, None) is None:
                raise Missing(f"no {path}.{name}")
            setattr(part, name, None)

    def empty(self, state: str, model: str = "a") -> None:
        """Memory of the module's own is new, and holds nothing until a state is loaded: so large
        models are built."""
        module = self.models[model].to_empty(device=self.device)
        with torch.no_grad():
            for tensor in registered(module).values():
                tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
        load(module, self._cast(self.states[state]))

    def share(self, model: str = "a") -> None:
        """Weights move to memory that processes share; the tensors are the same."""
        self.models[model].share_memory()


def _ends(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds of work are over; or some that passed, as on a busy machine threads
    wait for one another far longer than they work, and an answer is awaited."""
    work, passed = time.process_time() + seconds, time.monotonic() + min(10 * seconds, _PASSED)
    return lambda: time.process_time() > work or (seconds < math.inf and time.monotonic() > passed)


def _apart(one: Any, other: Any) -> float:
    """How far two results of the same call are from one another."""
    if one is None or other is None or one.shape != other.shape:
        return 0.0 if one is other else float("inf")
    if torch.equal(one, other):
        return 0.0
    far = (one.double() - other.double()).abs() if not one.is_complex() else (one - other).abs()
    far = far[~(torch.isnan(one) & torch.isnan(other))]
    return float(far.nan_to_num(nan=float("inf")).max()) if far.numel() else 0.0
