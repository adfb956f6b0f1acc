"""The reference as truth: eager outputs under the recorded flags, and the same in float64.

Every run is a pure function of (state, inputs, mode, seed): buffers are put back afterwards and
what they became is part of the result. Widening to float64 and back is lossless, so the model is
widened in place: it is held once, and whatever else holds its tensors (a function that an attribute
keeps) computes in float64, too, where a copy's would still read the original's.
"""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from refold.contract import Reference, seed_everything
from refold.judge.clock.stopwatch import effort
from refold.judge.draws.noise import Noise
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import beside, rows, threads
from refold.judge.truth import replay
from refold.judge.truth.copies import (
    copied_state,
    digest,
    duplicate,
    each_tensor,
    held_buffers,
    hold_again,
    plainly,
    put_back,
    same,
    unchanged,
    unregistered,
    widen,
)
from refold.judge.truth.rehearsal import Rehearsal, Watch
from refold.judge.truth.truth import Meta, Run
from refold.judge.truth.widths import Operands, Places, Widths
from refold.judge.wire.meter import METER, size_of
from refold.judge.wire.place import Place
from refold.judge.worker import looks
from refold.judge.worker.builds import Builds
from refold.judge.worker.leaves import dense, load, other_generators, real, sparse, state_of

_SHARE = 1 / 8  # of the device's memory: what is kept of runs
_CPU_SHARE = 1 / 8  # of the machine's memory: what is kept of runs of a model on the CPU
LARGE = 64 << 20  # bytes of a state
_BOTH = 1 << 30  # bytes of a state in float64 up to which it stays beside the state
_FEW_CALLS, _CALLS, _TRIED = 4, 16, 0.05  # that are timed: more, while they take so many seconds
_KEPT = 1 << 20  # elements of a parameter from which on its float64 values are kept


class Oracle:
    """Holds the reference module on the judged device."""

    def __init__(self, reference: Reference, seed: int, device: torch.device) -> None:
        self.reference = reference
        self.seed = seed
        self.device = device
        self.place = Place(device)
        self.init = reference.init_inputs(seed)
        self.builds = Builds(
            lambda given: reference.make(seed, self.init if given is None else given).to(device)
        )
        self.model = self.builds()
        self.generator = digest(torch.get_rng_state())  # as the constructor leaves it
        self.training = self.model.training
        self._drew: dict[bool, bool] = {}  # by mode, whether runs draw random numbers
        self.writes: frozenset[str] = frozenset()  # parameters that a forward writes, see `first`
        held = state_of(self.model).values()
        self.bytes = sum(t.numel() * t.element_size() for t in held)
        self._wide_calls: dict[Any, Places] = {}  # see `_widths`
        self._wide_kept: dict[int, tuple[Any, torch.Tensor]] = {}  # see `_wide_data`
        self.rehearsal: Rehearsal | None = None  # on a GPU, of calls that may end its use

    def share(self) -> int:
        """Bytes that kept results of runs may hold."""
        if self.device.type == "cuda":
            return int(_memory(self.device) * _SHARE)
        return int(_CPU_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def state(self) -> dict[str, torch.Tensor]:
        """A view of the current state, not a copy."""
        return {k: v.detach() for k, v in state_of(self.model).items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Take a state."""
        load(self.model, state)

    def eager(
        self, inputs: list[Any], training: bool, seed: int, cotangents: list[Any] | None = None
    ) -> Run:
        """The reference as it is."""
        if self.rehearsal is not None:
            self.rehearsal(self.state(), inputs, training, seed)
        return _run(
            self.model, inputs, training, seed, cotangents, self.device, self.place, self.writes
        )

    def _rehearse(self, inputs: list[Any]) -> None:
        """Run what may assert on a twin on the CPU from now on, if there can be one."""
        watch = Watch()
        try:
            place = self.device, self.place, self.writes
            _run(self.model, inputs, self.training, 0, None, *place, mode=watch)
            if Rehearsal.needed(watch):
                twin = Oracle(self.reference, self.seed, torch.device("cpu"))
                twin.eager(inputs, twin.training, 0)
                self.rehearsal = Rehearsal(twin, inputs, watch)
        except Exception:  # it does not run on the CPU, or not while it is watched
            self.rehearsal = None

    def first(self, inputs: list[Any]) -> Run:
        """Run once, to learn whether a forward writes parameters: then they are put back after
        each run, as buffers are. Of large models it is taken for granted that none does."""
        run = self._first(inputs)
        if self.device.type == "cuda":
            self._rehearse(inputs)
        return run

    def _first(self, inputs: list[Any]) -> Run:
        if self.bytes > LARGE:
            return self.eager(inputs, self.training, 0)
        kept = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        run = self.eager(inputs, self.training, 0)
        now = dict(self.model.named_parameters())
        self.writes = frozenset(k for k, v in kept.items() if not same(v, now[k].detach()))
        put_back(self.model, {k: kept[k] for k in self.writes})
        return run

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Buffers, and whatever else a forward writes, are put back in the end."""
        held, objects = copied_state(self.model, self.writes), held_buffers(self.model)
        try:
            yield
        finally:
            hold_again(objects)
            put_back(self.model, held)

    def call_seconds(self, inputs: list[Any]) -> float:
        """The least time of a few calls, at work. Of small models one thread makes them: on a busy
        machine two wait for one another, milliseconds for a call of microseconds, and tests would
        be left out for want of time that no call takes."""
        given, least, spent = duplicate(inputs, self.device), math.inf, 0.0
        elements = self.bytes // 4 + sum(t.numel() for t in tensors(inputs))
        with threads.few(elements), torch.no_grad(), self.kept():
            for i in range(_CALLS):
                if i >= _FEW_CALLS and spent > _TRIED:
                    break
                taken = effort()
                self.model(*given)
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                took = taken()
                least, spent = min(least, took), spent + took
        return least

    def remembers(self, inputs: list[Any], other: list[Any], training: bool, seed: int) -> bool:
        """Whether outputs depend on buffers that the call before has written, on ``inputs`` again
        or on ``other`` ones: what the first call decides for all is as it was for the same."""
        kept = copied_state(self.model, self.writes)
        first, again = (self.eager(inputs, training, seed) for _ in range(2))
        if all(torch.equal(v.cpu(), first.buffers[k]) for k, v in kept.items()):
            return False
        alone = self.eager(other, training, seed)
        try:
            put_back(self.model, first.buffers)
            second, behind = (self.eager(given, training, seed) for given in (inputs, other))
        finally:
            put_back(self.model, kept)
        runs = (first, again, second, alone, behind)
        told = [[digest(t) for t in tensors(run.outputs)] for run in runs]
        return told[0] == told[1] and (told[1] != told[2] or told[3] != told[4])

    def perturbed(
        self,
        inputs: list[Any],
        training: bool,
        seed: int,
        noise: int,
        units: float = rows.MOVED,
        cotangents: list[Any] | None = None,
        results: bool = False,
    ) -> Run:
        """The float64 run with every input and weight moved at random by some units in the last
        place of its own type, and of a model of float64 (``results``: of any, by float32's) every
        result, too: what an honest order of rounding may turn a tie into."""
        random = Noise(noise)
        draws = self._draws(inputs, training, seed) if self._drew.get(training) else None
        if cotangents is None and not results and (wide := self._widths(inputs, training, seed)):
            with Operands(units * torch.finfo(torch.float32).eps, random, wide):
                return self._wide(inputs, training, seed, None, draws)
        inward = self.rehearsal is not None and self.rehearsal.by_value

        def move(t: torch.Tensor) -> torch.Tensor:
            if not inexact(t):
                return t
            draw = random.like(t).double()
            draw = -draw.abs() if inward else draw  # what is above 1 is no probability
            wide: torch.Tensor = widen(t)
            return wide * (1 + units * torch.finfo(t.dtype).eps * draw)

        doubles = replay.is_double((*self.state().values(), *tensors(inputs)))
        wider = 1.0 if doubles else torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps
        every = replay.Rounded(units * wider, random)
        rounded = every if doubles or results else contextlib.nullcontext()
        with self._widened(move), rounded:
            given = [each_tensor(v, move) for v in inputs]
            return self._wide(given, training, seed, cotangents, draws)

    def _widths(self, inputs: list[Any], training: bool, seed: int) -> Places:
        """What a model of narrower types computes in float64 by itself, in calls of this form."""
        key = training, *((t.shape, t.dtype) for t in tensors(inputs))
        if key not in self._wide_calls:
            mode = Widths(replay.is_double((*self.state().values(), *tensors(inputs))))
            place = self.device, self.place, self.writes
            _run(self.model, inputs, training, seed, None, *place, mode=mode)
            self._wide_calls[key] = mode.wide
        return self._wide_calls[key]

    def exact(
        self,
        inputs: list[Any],
        training: bool,
        seed: int,
        cotangents: list[Any] | None = None,
        eager: Any = None,
    ) -> Run:
        """The reference in float64, with the random numbers that it draws as it is. Large outputs
        are held beside those of ``eager``, if they are given."""
        if not self._drew.get(training):
            run = self._wide(inputs, training, seed, cotangents, None, eager)
            self._drew[training] = run.drew
            if not run.drew:
                return run
        draws = self._draws(inputs, training, seed)
        return self._wide(inputs, training, seed, cotangents, draws, eager)

    def _draws(self, inputs: list[Any], training: bool, seed: int) -> replay.Draws:
        record = replay.Record()
        place = self.device, self.place, self.writes
        _run(self.model, inputs, training, seed, None, *place, mode=record)
        return record.draws

    def _wide(
        self,
        inputs: list[Any],
        training: bool,
        seed: int,
        cotangents: list[Any] | None,
        draws: replay.Draws | None,
        eager: Any = None,
    ) -> Run:
        outs = None if cotangents is None else [widen(v) for v in cotangents]
        mode = None if draws is None else replay.Replay(draws)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with self._widened(), replay.Widen():
                given = (inputs, training, seed, outs, self.device, self.place, self.writes)
                return _run(self.model, *given, wide=True, mode=mode, eager=eager)
        finally:
            torch.set_default_dtype(default)

    @contextlib.contextmanager
    def _widened(
        self, change: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> Iterator[None]:
        """The model's tensors in float64; change: with other values."""
        found = (*self.model.parameters(), *self.model.buffers(), *unregistered(self.model))
        held = list({id(t): t for t in found if inexact(t)}.values())
        both = change is not None or 2 * self.bytes <= _BOTH
        before = [(t.dtype, t.data if both else None) for t in held]
        try:
            for t in held:
                t.data = self._wide_data(t) if change is None else change(t.data)
            yield
        finally:
            for t, (dtype, data) in zip(held, before, strict=True):
                t.data = t.data.to(dtype) if data is None else data

    def _wide_data(self, t: torch.Tensor) -> Any:
        """A tensor in float64. Of a large parameter it is kept until PyTorch counts a write to the
        parameter: who compares a dozen calls under one state widens it once."""
        kept = isinstance(t, nn.Parameter) and t.numel() >= _KEPT and 2 * self.bytes <= _BOTH
        if not kept or self.writes or t.is_inference():
            return widen(t.data)
        form = (t.data_ptr(), t.shape, t.stride(), t.dtype)
        then, wide = self._wide_kept.get(id(t), (None, t))
        if then is None or then[0]() is not t or then[1:] != (t._version, form):
            wide = widen(t.data)
            self._wide_kept[id(t)] = (weakref.ref(t), t._version, form), wide
        return wide


def _run(model: nn.Module, inputs: list[Any], *given: Any, **options: Any) -> Run:
    """`_ran`, and where its time goes."""
    kind = "reference fp64" if options.get("wide") else "reference"
    found: list[Run] = []
    with METER.span(kind, lambda: size_of(*(run.outputs for run in found))):
        found.append(_ran(model, inputs, *given, **options))
    return found[0]


def _ran(
    model: nn.Module,
    inputs: list[Any],
    training: bool,
    seed: int,
    cotangents: list[Any] | None,
    device: torch.device,
    place: Place,
    writes: frozenset[str] = frozenset(),
    wide: bool = False,
    mode: contextlib.AbstractContextManager[Any] | None = None,
    eager: Any = None,
) -> Run:
    given = duplicate(inputs, device, cotangents is not None, wide)
    kept, objects = copied_state(model, writes), held_buffers(model)
    built = [(m, m.training) for m in model.modules()]  # parts may be frozen in eval mode
    if training != model.training:
        model.train(training)
    seed_everything(seed)
    start, before = _generators(device), other_generators()
    try:
        with torch.set_grad_enabled(cotangents is not None), mode or contextlib.nullcontext():
            outputs = model(*given)
        random = digest(torch.get_rng_state())
        drew = _generators(device) != start
        others = tuple(a != b and bool(a) for a, b in zip(before, other_generators(), strict=True))
        grads: dict[str, torch.Tensor] = {}
        thin: tuple[str, ...] = ()
        if cotangents is not None:
            grads, thin = _backward(model, outputs, cotangents, given, place)
        after = {k: v.cpu() for k, v in copied_state(model, writes).items()}
        changed = tuple(
            i
            for i, (a, b) in enumerate(zip(tensors(inputs), tensors(given), strict=True))
            if not unchanged(a, b.detach())
        )
        written = tuple(plainly(tensors(given)[i], place) for i in changed)
        kinds = tuple(
            Meta(tuple(t.stride()), isinstance(t, nn.Parameter)) for t in tensors(outputs)
        )
        shares = tuple(looks.shared(outputs, given, model))
        plain = beside.held(outputs, eager, lambda v: plainly(v, place))
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # what fails or takes time does so here
        beside_it = (random, changed, kinds, written, drew, shares, others, thin)
        return Run(plain, after, grads, *beside_it)
    finally:
        for module, was in built:
            module.training = was
        hold_again(objects)
        put_back(model, kept)


def _generators(device: torch.device) -> tuple[str, ...]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return tuple(digest(state) for state in states)


def _backward(
    model: nn.Module, outputs: Any, cotangents: list[Any], given: Any, place: Place
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Gradients by name, and which of them are sparse."""
    model.zero_grad(set_to_none=True)
    pairs = [
        (o, g.to(o.device))
        for o, g in zip(tensors(outputs), cotangents, strict=True)
        if isinstance(g, torch.Tensor) and o.requires_grad
    ]
    if not pairs:
        return {}, ()
    # The same gradients as from ``grad_tensors``, which import the compiler: a second.
    torch.autograd.backward([real(o * g).sum() for o, g in pairs])
    found = {f"input {i}": t.grad for i, t in enumerate(tensors(given))}
    found |= {n: p.grad for n, p in model.named_parameters(remove_duplicate=False)}
    model.zero_grad(set_to_none=True)
    # nothing else holds them any more; of large models they are compared where they are
    there = {k: v.detach() for k, v in found.items() if v is not None}
    return {k: dense(v).to(place.like(v)) for k, v in there.items()}, tuple(sparse(there))


def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
