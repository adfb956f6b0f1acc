"""The lives of the reference: as it is, and in float64, by the steps that the worker runs too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from refold.judge.draws.noise import Noise
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import rows, threads
from refold.judge.truth import replay
from refold.judge.truth.copies import unregistered, widen
from refold.judge.truth.oracle import Oracle
from refold.judge.truth.rehearsal import Watch
from refold.judge.wire.meter import METER, size_of
from refold.judge.worker.steps import Interpreter, Step

States = Mapping[str, dict[str, torch.Tensor]]
Inputs = Mapping[str, list[Any]]


@dataclass(frozen=True)
class Lived:
    """What one run of a life saw, by label; ``raised``: what ended it early."""

    seen: dict[str, tuple[str, Any]]
    raised: dict[str, Any] | None

    @staticmethod
    def of(answer: dict[str, Any]) -> Lived:
        """From what an interpreter answers."""
        seen = {str(label): (str(kind), tree) for label, kind, tree in answer["seen"]}
        return Lived(seen, answer["raised"])


class Living:
    """Runs lives on the reference. Each builds a module of its own: the oracle's stays as it is."""

    def __init__(self, oracle: Oracle, seed: int, random: bool) -> None:
        self.oracle, self.seed, self.random = oracle, seed, random
        self._draws: tuple[Any, replay.Draws] | None = None  # of the life that was recorded last

    def eager(
        self,
        steps: Sequence[Step],
        states: States,
        inputs: Inputs,
        alone: bool = True,
        mode: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Lived:
        """The reference as it is. What a GPU would assert is told by the CPU, and is not tried.
        alone: by one of PyTorch's threads where tensors are small. mode: what it runs under."""
        if self._may_assert(steps, inputs):
            watch = Watch()
            assert self.oracle.rehearsal is not None
            twin = Living(self.oracle.rehearsal.twin, self.seed, self.random)
            told = twin._run(steps, states, inputs, mode=watch)
            # one_hot asserts on a GPU, and raises on the CPU before any operation does
            if watch.asserted or told.raised is not None:
                return Lived({}, told.raised or {"type": "Asserted", "message": "on the CPU"})
        return self._run(steps, states, inputs, mode=mode, alone=alone)

    def _may_assert(self, steps: Sequence[Step], inputs: Inputs) -> bool:
        """Whether a life has calls of which the rehearsal knows nothing."""
        known = self.oracle.rehearsal
        if known is None:
            return False
        other = any("init" in step or step["do"] == "refuse" for step in steps)
        return other or not all(known.ordinary(given) for given in inputs.values())

    def exact(self, steps: Sequence[Step], states: States, inputs: Inputs) -> Lived:
        """In float64, with the random numbers that eager draws."""
        return self._wide(steps, states, inputs, self._drawn(steps, states, inputs))

    def moved(
        self,
        steps: Sequence[Step],
        states: States,
        inputs: Inputs,
        noise: int,
        eps: float = 0.0,
        units: float = 1.0,
        still: bool = False,
        few: bool = False,
    ) -> Lived:
        """In float64, all states and inputs moved by some units in the last place: what happens
        to a life's errors. ``units``: of those, one of eager's class; ``still``: results of
        operations move instead, and what is compared as it was given falls on no other side;
        ``few``: nor do those that are exact, as of few bits they are."""
        draw = Noise(noise)

        def move(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if not inexact(value):
                    return value
                step = rows.MOVED * (eps or units * torch.finfo(value.dtype).eps)
                there = value.to(self.oracle.device)
                wide: torch.Tensor = widen(there)
                return wide * (1 + step * draw.like(there).double())
            if isinstance(value, list | tuple):
                return type(value)([move(v) for v in value])
            if isinstance(value, dict):
                return {k: move(v) for k, v in value.items()}
            return value

        held = [*states.values(), *inputs.values()]
        doubles = replay.is_double(t for v in held for t in tensors(v))
        # of a module that the life moves to float64, too: a gradient by cotangents of few bits
        # alone is as it was, wherever inputs and weights are
        widest = doubles or eps == torch.finfo(torch.float64).eps
        mode = replay.Rounded(rows.MOVED, draw) if widest else None
        eps_of = torch.finfo(torch.float64 if doubles else torch.float32).eps
        step = rows.MOVED * (eps or units * eps_of)
        # from moved tensors, which are wide, generators draw other numbers
        drawn = self._drawn(steps, states, inputs)
        if still:
            mode = replay.Rounded(step / torch.finfo(torch.float64).eps, draw, few)
            return self._wide(steps, states, inputs, drawn, mode)

        def cotangents(t: torch.Tensor) -> torch.Tensor:
            return t * (1 + step * draw.like(t).double())

        return self._wide(steps, move(dict(states)), move(dict(inputs)), drawn, mode, cotangents)

    def _drawn(self, steps: Sequence[Step], states: States, inputs: Inputs) -> replay.Draws | None:
        """What random operations give in eager's life; None where it draws nothing."""
        if not self.random:
            return None
        life = (steps, states, inputs)
        kept = self._draws
        if kept is None or any(a is not b for a, b in zip(kept[0], life, strict=True)):
            record = replay.Record()
            self._run(steps, states, inputs, mode=record)
            self._draws = kept = life, record.draws
        return kept[1]

    def _wide(
        self,
        steps: Sequence[Step],
        states: States,
        inputs: Inputs,
        drawn: replay.Draws | None,
        rounded: replay.Rounded | None = None,
        move: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> Lived:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        mode = contextlib.nullcontext() if drawn is None else replay.Replay(drawn)
        try:
            with replay.Widen(), rounded or contextlib.nullcontext():
                return self._run(steps, states, inputs, True, mode, before, move)
        finally:
            torch.set_default_dtype(before)

    def _run(
        self,
        steps: Sequence[Step],
        states: States,
        inputs: Inputs,
        wide: bool = False,
        mode: contextlib.AbstractContextManager[Any] | None = None,
        default: torch.dtype | None = None,
        move: Callable[[torch.Tensor], torch.Tensor] | None = None,
        alone: bool = True,
    ) -> Lived:
        oracle = self.oracle

        def make(init: list[Any] | None = None) -> nn.Module:
            now = torch.get_default_dtype()
            torch.set_default_dtype(default or now)
            try:
                with torch._C.DisableTorchFunction():  # built as it always is, widened afterwards
                    return oracle.builds(init)
            finally:
                torch.set_default_dtype(now)

        run = Interpreter(
            make,
            states,
            inputs,
            self.seed + 7,
            oracle.device,
            wide=wide,
            parallel=False,
            on_build=_widened if wide else None,
            move=move,
        )
        kind, answers = "life fp64" if wide else "life", list[dict[str, Any]]()
        elements = oracle.bytes // 4 + sum(t.numel() for v in inputs.values() for t in tensors(v))
        with (
            threads.few(elements if alone else sys.maxsize),  # the worker lives beside it
            METER.span(kind, lambda: size_of([a["seen"] for a in answers])),
            mode or contextlib.nullcontext(),
        ):
            answers.append(run.run(steps))
            return Lived.of(answers[0])


def _widened(model: nn.Module) -> None:
    for t in (*model.parameters(), *model.buffers(), *unregistered(model)):
        if inexact(t):
            t.data = widen(t.data)
