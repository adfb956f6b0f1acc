"""What the reference says in a session: states, inputs, and truths that are kept as long as there
is room for them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch

from refold.contract import Reference
from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import compare, luck, threads, ties
from refold.judge.truth import power, runs
from refold.judge.truth.oracle import LARGE, Oracle
from refold.judge.truth.truth import Run, Truth
from refold.judge.verdict.room import starving
from refold.judge.wire.meter import METER, size_of

INITIAL, PERTURBED, SECOND = "initial", "perturbed", "second"
_PROBE = 1 << 18  # elements of the outputs of most tests
_LEAST_SAMPLES = 3
_PRODUCTS = 1 << 28  # of elements of the state and samples, of a call of most tests
_SOME_SAMPLES = 16  # where that would be fewer
_KEPT = 256 << 20  # bytes of truths that are kept at most; the last one always is


class Truths:
    """The half of `session.Session` that no candidate has a part in."""

    reference: Reference
    oracle: Oracle
    frugal: bool
    fixed: bool
    notes: list[str]
    tie_searches: dict[str, tuple[int, int]]
    _states: dict[str, dict[str, torch.Tensor]]
    _truths: dict[Any, Truth]
    _inputs: dict[Any, list[Any]]
    _moved: dict[int, tuple[Truth, dict[str, tuple[float, float]]]]
    _oracle_at: str
    _remembers: dict[bool, bool]
    _random: bool | None
    samples: tuple[int, int] | None
    _fine: bool | None = None
    _usual: luck.Usual | None = None
    moved: int = 0  # bytes of inputs and outputs of a call of most tests

    @property
    def seed(self) -> int:
        """Of everything drawn but the secret draws."""
        raise NotImplementedError

    @property
    def base_state(self) -> str:
        """The state most tests run under: every parameter and buffer away from its start value."""
        large = self.frugal and self.oracle.bytes > LARGE
        return INITIAL if large or self.fixed else PERTURBED

    def drawn(self, seed: int) -> list[Any]:
        """The file's inputs under a seed."""
        found: list[Any] = []
        with METER.span("inputs drawn", lambda: size_of(found)):
            found += self.reference.inputs(seed)
        return found

    def file_inputs(self, draw: int = 0) -> list[Any]:
        """The file's own distribution."""
        key = ("file", draw)
        if key not in self._inputs:
            self._inputs[key] = self.drawn(self.seed + 1000 + draw)
        return self._inputs[key]

    def cut(self, inputs: list[Any]) -> list[Any]:
        """The inputs with so few samples that outputs are small, where the reference takes that:
        most tests look at no sizes, and large outputs cost seconds to compare."""
        if self.samples is None:
            return inputs
        batch, few = self.samples
        return [
            draws.every(v, lambda t: t[:few] if t.dim() and t.shape[0] == batch else t)
            for v in inputs
        ]

    def find_cut(self, outputs: Any) -> None:
        """Decide on how many samples tests run; ``outputs``: of the file's inputs."""
        given = self.file_inputs()
        held = tensors(given)
        size = max([t.numel() for t in (*held, *tensors(outputs))], default=0)
        self.moved = size_of(given, outputs)
        batch = held[0].shape[0] if held and held[0].dim() else 0
        few = max(_LEAST_SAMPLES, int(batch * _PROBE / max(size, 1)))
        # a matrix of 64 MB takes 64 samples three times as long as 16, and shows no more of them
        held_elements = max(1, self.oracle.bytes // 4)
        few = min(few, max(_SOME_SAMPLES, _PRODUCTS // held_elements))
        if few >= batch:
            return
        self.samples = (batch, few)
        try:
            run = self.oracle.eager(self.cut(given), self.oracle.training, self.seed + 7)
            if not tensors(run.outputs):
                self.samples = None
            else:
                self.moved = size_of(self.cut(given), run.outputs)
        except Exception:  # it takes no other batch
            self.samples = None

    def inputs(self, draw: int = 0) -> list[Any]:
        """Zero-mean inputs where the reference makes finite outputs of them, else the file's; of
        few samples, see `cut`."""
        key = ("probe", draw)
        if key not in self._inputs:
            chosen = self.cut(self.file_inputs(draw))
            if draws.has_numbers(chosen):
                probe = draws.normal(chosen, 1.0, self.seed + 2000 + draw)
                truth = self.truth(probe)
                if truth.eager is not None and runs.mostly_finite(truth.eager.outputs):
                    chosen = probe
            self._inputs[key] = chosen
        return self._inputs[key]

    def state(self, name: str) -> dict[str, torch.Tensor]:
        """A named state; ``initial`` is what the constructor draws."""
        if name not in self._states:
            if INITIAL not in self._states:
                self._states[INITIAL] = {k: v.clone() for k, v in self.oracle.state().items()}
            if name != INITIAL:
                start = self._states[INITIAL]
                drawn = draws.perturbed(start, self.seed + len(self._states))
                rolled = draws.rolled(start, len(self._states))
                if rolled and self._takes({**drawn, **rolled}):
                    drawn |= rolled
                self._states[name] = self.tied(drawn)
        return self._states[name]

    def _takes(self, state: dict[str, torch.Tensor]) -> bool:
        """Whether the reference makes finite outputs under a state."""
        self._oracle_at = ""
        self.oracle.load(state)
        try:
            run = self.oracle.eager(self.file_inputs(), self.oracle.training, self.seed + 7)
        except Exception:  # what its buffers mean does not bear it
            return False
        return runs.mostly_finite(run.outputs)

    def tied(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The state with one value for all names of one tensor: of tied weights the last to be
        loaded would count, and which that is depends on the order of declaration."""
        first: dict[Any, str] = {}
        for name, value in self.oracle.state().items():
            if value.numel():
                first.setdefault((value.data_ptr(), value.shape, value.stride()), name)
        names = {
            k: first.get((v.data_ptr(), v.shape, v.stride()), k)
            for k, v in self.oracle.state().items()
        }
        return {k: state[names.get(k, k)] for k in state}

    def legal(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The state with its buffers as they are in the perturbed one: of a variance either sign
        means nothing."""
        own = {k for k, _ in self.oracle.model.named_buffers()}
        return {k: self.state(PERTURBED)[k] if k in own else v for k, v in state.items()}

    def unsaved(self) -> dict[str, torch.Tensor]:
        """The reference's buffers that no state holds, as they were built: what a run writes to
        them is put back."""
        saved, found = self.oracle.state(), self.oracle.model.named_buffers()
        return {k: v.detach() for k, v in found if k not in saved}

    def add_state(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """Name a state that a test made; truths under an earlier one of that name are forgotten."""
        self._states[name] = self.tied(state)
        self._truths = {k: v for k, v in self._truths.items() if k[1] != name}
        if self._oracle_at == name:
            self._oracle_at = ""

    def oracle_enter(self, state: str) -> None:
        """Bring the oracle's models into a named state."""
        if self._oracle_at != state:
            if self._oracle_at == INITIAL:
                self.state(INITIAL)
            self._enter(state, self.state(state))

    def _enter(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """A state by its tensors; they have the name no more if another has it now."""
        now = self._states.get(name)
        if self._oracle_at == name and now is state:
            return
        self.oracle.load(state)
        self._oracle_at = name if now is state else ""

    def truth(
        self,
        inputs: list[Any],
        state: str | None = None,
        training: bool | None = None,
        grad: bool = False,
    ) -> Truth:
        """Eager and float64 runs, memoized by the identity of ``inputs``."""
        name = self.base_state if state is None else state
        mode = self.oracle.training if training is None else training
        key = (id(inputs), name, mode, grad)
        if key in self._truths:
            self._truths[key] = self._truths.pop(key)  # the last one used goes last
            return self._truths[key]
        # a library's gradient is another sum for each number of threads: the candidate's are all
        with contextlib.nullcontext() if grad else self._few(inputs):
            truth = self._made(inputs, name, mode, grad)
        self._truths[key] = truth
        self._forget(min(self.oracle.share(), _KEPT))
        return truth

    def _few(self, inputs: list[Any]) -> contextlib.AbstractContextManager[None]:
        return threads.few(self.oracle.bytes // 4 + sum(t.numel() for t in tensors(inputs)))

    def _made(self, inputs: list[Any], name: str, mode: bool, grad: bool) -> Truth:
        seed = self.seed + 7
        self.oracle_enter(name)
        try:
            cotangents = None
            if grad:
                probe = self.oracle.eager(inputs, mode, seed)
                cotangents = [runs.cotangent(t, seed) for t in tensors(probe.outputs)]
            eager = self.oracle.eager(inputs, mode, seed, cotangents)
        except (Exception, SystemExit) as error:
            if starving(error):
                raise
            raised = f"{type(error).__name__}: {str(error)[:200]}"
            return Truth(None, raised=raised, inputs=inputs)
        # the state as it is now: a test may name another one so before float64 is asked for
        state, built = self.state(name), [m.training for m in self.oracle.model.modules()]

        def exact(truth: Truth) -> Run:
            with self._few(inputs), self._in_modes(built):
                self._enter(name, state)
                return self._exact(truth, eager, seed)

        def mended(truth: Truth, exact: Run) -> Run:
            if exact is eager:
                return eager
            with self._few(inputs), self._in_modes(built):
                self._enter(name, state)
                return ties.eager_resolved(self, truth, eager, exact)

        return Truth(eager, exact, mended, "", cotangents or [], inputs, name, mode)

    @contextlib.contextmanager
    def _in_modes(self, modes: list[bool]) -> Iterator[None]:
        """The oracle's parts in these modes: a test may have thawed them for a while."""
        parts = list(self.oracle.model.modules())
        before = [m.training for m in parts]
        try:
            for part, mode in zip(parts, modes, strict=True):
                part.training = mode
            yield
        finally:
            for part, mode in zip(parts, before, strict=True):
                part.training = mode

    def _exact(self, truth: Truth, eager: Run, seed: int) -> Run:
        """The float64 run, or eager's where there is none."""
        try:
            grads = truth.cotangents or None
            exact = self.oracle.exact(truth.inputs, truth.training, seed, grads, eager.outputs)
            if not ties.same_shapes(exact.outputs, eager.outputs):
                raise ValueError("its outputs have other shapes")
        except Exception as error:
            if starving(error):
                raise
            # No float64 run: eager is the truth, and only the floor is left to the candidate.
            note = f"no float64 oracle ({type(error).__name__}: {error})"
            if note not in self.notes:
                self.notes.append(note)
            return eager
        return exact

    def _forget(self, most: float) -> None:
        """Drop truths, the longest unused first, until the others hold at most so many bytes: to
        run the reference again costs less than memory that candidate and reference need."""
        held = {key: truth.bytes() for key, truth in self._truths.items()}
        for key in list(held)[:-1]:
            if sum(held.values()) <= most:
                break
            self._moved.pop(id(self._truths.pop(key)), None)
            del held[key]

    def remembers(self, training: bool) -> bool:
        """Whether the reference's outputs depend on what the call before has written: power
        iterations, moving averages. Each call then starts from the buffers of its state."""
        if training not in self._remembers:
            inputs, other = (self.cut(self.file_inputs(draw)) for draw in (0, 1))
            try:
                found = self.oracle.remembers(inputs, other, training, self.seed + 7)
            except Exception:  # the reference raises in this mode, which the tests find out
                found = False
            self._remembers[training] = found
        return self._remembers[training]

    @property
    def random(self) -> bool:
        """Whether the reference draws random numbers in either mode."""
        if self._random is None:
            self._random = False
            for mode in (True, False):
                with contextlib.suppress(Exception):  # it does not run in this mode
                    run = self.oracle.eager(self.inputs(), mode, self.seed + 7)
                    self._random = self._random or run.drew
        return self._random

    def spread(self, truth: Truth) -> dict[str, tuple[float, float]]:
        """Eager's error where one truth does not show it.

        For outputs of few elements it is that over all truths so far. A model of float64 has no
        wider truth: its error is what one unit in the last place of every input and weight does.
        """
        assert truth.eager is not None and truth.exact is not None
        found = self.float64_errors(truth)
        for name, leaf in compare.leaves(truth.exact.outputs):
            few = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() < 256
            if few and name not in found:
                relative = self._relative(name)
                finite = leaf[torch.isfinite(leaf)].abs()
                scale = float(finite.max()) if finite.numel() else 0.0
                units = compare.units(leaf)  # beside a large sample the usual ones count
                scale = scale if units is None else float(units.median())
                found[name] = (relative * scale, relative * scale)
        return found

    def spread_of(
        self, truth: Truth, name: str, always: bool = False
    ) -> dict[str, tuple[float, float]] | None:
        """What `compare` is to know of one buffer or gradient of a model of float64; always: of
        any model."""
        error = (self._moved_errors(truth) if always else self.float64_errors(truth)).get(name)
        return {"output": error} if error else None

    def float64_errors(self, truth: Truth) -> dict[str, tuple[float, float]]:
        """Of a model of float64, the errors of each output, buffer and gradient; else nothing."""
        assert truth.exact is not None
        given = [*tensors(truth.inputs), *self.oracle.state().values()]
        if any(inexact(t) and t.dtype not in (torch.float64, torch.complex128) for t in given):
            return {}
        return self._moved_errors(truth)

    def _moved_errors(self, truth: Truth) -> dict[str, tuple[float, float]]:
        """What one unit in the last place of every input and weight does."""
        assert truth.exact is not None
        if id(truth) not in self._moved:
            self.oracle_enter(truth.state)
            grads = truth.cotangents or None
            seed = self.seed + 7
            moved = self.oracle.perturbed(truth.inputs, truth.training, seed, self.seed, 1.0, grads)
            values, exact = runs.named(moved), runs.named(truth.exact)
            errors = {n: runs.distance(values[n], t) for n, t in exact.items() if n in values}
            self._moved[id(truth)] = truth, errors  # the truth is kept: ids must not be reused
        return dict(self._moved[id(truth)][1])

    @property
    def fine(self) -> bool:
        """Whether all floating outputs of the reference have at least float32's bits."""
        if self._fine is None:
            run = self.truth(self.inputs()).plain
            held = tensors(run.outputs) if run is not None else []
            self._fine = all(torch.finfo(t.dtype).bits >= 32 for t in held if inexact(t))
        return self._fine

    def usual(self) -> luck.Usual:
        """What eager's errors are on ordinary inputs, in units in the last place: which class it
        computes in. Measured once, and not of large models."""
        if self._usual is None:
            self._usual = luck.Usual()  # what is asked for while it is measured
            truth = self.truth(self.inputs())
            if not self.frugal and truth.exact is not None and truth.eager is not None:
                eager, exact = runs.named(truth.eager), runs.named(truth.exact)
                names = [n for n, _ in compare.leaves(truth.exact.outputs) if n in exact]
                errors = {n: runs.distance(eager[n], exact[n])[0] for n in names}
                moved = {n: e[0] for n, e in self._moved_errors(truth).items()}
                self._usual = luck.usual(errors, moved)
        return self._usual

    def _relative(self, name: str) -> float:
        squares = []
        for truth in list(self._truths.values()):  # a float64 run may ask for others
            if truth.eager is None or truth.exact is None:
                continue
            if not truth.relative:
                truth.relative = power.errors(truth.eager.outputs, truth.exact.outputs)
            value = truth.relative.get(name, math.nan)
            if value < 1e-6:
                squares.append(value)
        return (sum(squares) / len(squares)) ** 0.5 if squares else 0.0
