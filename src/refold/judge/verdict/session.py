"""What the tests share: the candidate's worker, the oracle's memoized truths, the books."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from refold.contract import Reference
from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import compare, threads, ties
from refold.judge.truth import runs
from refold.judge.truth.oracle import LARGE, Oracle, Truth
from refold.judge.verdict.verdict import ErrorStats, Failure, Status
from refold.judge.wire.host import Host, Limits, Raised, WorkerDied
from refold.judge.wire.outside import Outside

if TYPE_CHECKING:
    from refold.judge.ask.request import How, Request

INITIAL, PERTURBED, SECOND = "initial", "perturbed", "second"
_DEATHS = {"timed out": Status.TIMED_OUT}
_RESPAWNS = 2
_MODELS = 2.5  # eager, the candidate, and now and then float64: calls for each call of a test
_OVERHEAD = 5e-4  # seconds of a call beside the models' own


@dataclass
class Session:
    """One judgement in progress."""

    reference: Reference
    request: Request
    how: How
    oracle: Oracle
    finite_only: bool
    threads: int
    frugal: bool = False
    call_seconds: float = 0.0  # least wall time of one call of the reference
    spent: float = 0.0  # of the budget, in estimated seconds
    test: str = ""
    cases: int = 0
    powered: int = 0
    errors: list[ErrorStats] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    assumptions: set[str] = field(default_factory=set)
    info: dict[str, Any] = field(default_factory=dict)
    import_seconds: float = 0.0
    workers: str = ""
    host: Host | None = None
    deaths: int = 0
    tie_searches: dict[str, tuple[int, int]] = field(default_factory=dict)
    _states: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    _truths: dict[Any, Truth] = field(default_factory=dict)
    _inputs: dict[Any, list[Any]] = field(default_factory=dict)
    _moved: dict[int, tuple[Truth, dict[str, tuple[float, float]]]] = field(default_factory=dict)
    _at: str = INITIAL
    _oracle_at: str = INITIAL
    _worker_training: bool | None = None
    _dirty: bool = False
    _random: bool | None = None
    _held: dict[tuple[str, str], Any] = field(default_factory=dict)
    _remembers: dict[bool, bool] = field(default_factory=dict)
    reload: Callable[[], Host] | None = None
    outside: Outside = field(default_factory=Outside)
    found: list[Failure] = field(default_factory=list)  # by the way, whatever test runs

    # -- what is asked -------------------------------------------------------------------------

    @property
    def candidate(self) -> Path:
        """The candidate's file."""
        return self.request.candidate

    @property
    def device(self) -> torch.device:
        """Where both sides run."""
        return self.oracle.device

    @property
    def seed(self) -> int:
        """Of everything drawn but the secret draws."""
        return self.request.seed

    @property
    def secret(self) -> int:
        """Seed of what no candidate may foresee."""
        return self.request.secret or 0

    @property
    def quick(self) -> bool:
        """Fewer cases, a short timing."""
        return self.how.quick

    @property
    def limits(self) -> Limits:
        """Of the workers."""
        return self.how.limits

    def affords(self, calls: int) -> bool:
        """Whether the budget has room for a test of so many calls of each model; if so, it is
        spent. By the estimate, not by the clock: a busy machine leaves nothing out."""
        cost = calls * (_MODELS * self.call_seconds + _OVERHEAD)
        if self.spent + cost > self.how.budget:
            return False
        self.spent += cost
        return True

    # -- inputs and states -------------------------------------------------------------------

    @property
    def base_state(self) -> str:
        """The state most tests run under: every parameter and buffer away from its start value."""
        return INITIAL if self.frugal and self.oracle.bytes > LARGE else PERTURBED

    def file_inputs(self, draw: int = 0) -> list[Any]:
        """The file's own distribution."""
        key = ("file", draw)
        if key not in self._inputs:
            self._inputs[key] = self.reference.inputs(self.seed + 1000 + draw)
        return self._inputs[key]

    def inputs(self, draw: int = 0) -> list[Any]:
        """Zero-mean inputs where the reference makes finite outputs of them, else the file's."""
        key = ("probe", draw)
        if key not in self._inputs:
            chosen = self.file_inputs(draw)
            if draws.has_floats(chosen):
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
            self.oracle.load(self.state(state))
            self._oracle_at = state

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
        self.oracle_enter(name)
        elements = self.oracle.bytes // 4 + sum(t.numel() for t in tensors(inputs))
        with threads.few(elements):
            truth = self._made(inputs, name, mode, grad)
        self._truths[key] = truth
        self._forget(self.oracle.share())
        return truth

    def _made(self, inputs: list[Any], name: str, mode: bool, grad: bool) -> Truth:
        seed = self.seed + 7
        try:
            cotangents = None
            if grad:
                probe = self.oracle.eager(inputs, mode, seed)
                cotangents = [runs.cotangent(t, seed) for t in tensors(probe.outputs)]
            eager = self.oracle.eager(inputs, mode, seed, cotangents)
        except (Exception, SystemExit) as error:
            raised = f"{type(error).__name__}: {str(error)[:200]}"
            return Truth(None, None, raised, inputs=inputs)
        note = ""
        try:
            exact = self.oracle.exact(inputs, mode, seed, cotangents)
            if not ties.same_shapes(exact.outputs, eager.outputs):
                raise ValueError("its outputs have other shapes")
        except Exception as error:
            # No float64 run: eager is the truth, and only the floor is left to the candidate.
            exact, note = eager, f"no float64 oracle ({type(error).__name__}: {error})"
            if note not in self.notes:
                self.notes.append(note)
        truth = Truth(eager, exact, "", note, cotangents or [], inputs, name, mode)
        return ties.eager_settled(self, truth)

    def _forget(self, most: float) -> None:
        """Drop truths, the longest unused first, until the others hold at most so many bytes: to
        run the reference again costs less than memory that candidate and reference need."""
        held = {key: truth.bytes() for key, truth in self._truths.items()}
        for key in list(held)[:-1]:
            if sum(held.values()) <= most:
                break
            self._moved.pop(id(self._truths.pop(key)), None)
            del held[key]

    # -- the worker ----------------------------------------------------------------------------

    def worker(self) -> Host:
        """The candidate's worker; started again after a death, at most twice."""
        if self.host is None or not self.host.alive:
            if self.host is not None:
                self.deaths += 1
                self.host.close()
            if self.deaths > _RESPAWNS:
                raise WorkerDied("crashed", "the candidate's worker died too often")
            assert self.reload is not None
            self.host = self.reload()
            self._at, self._worker_training, self._dirty = INITIAL, None, False
            self._held = {}
        return self.host

    def ask_guard(self) -> None:
        """Take down what the guard of the present worker saw."""
        if self.host is None or not self.host.alive:
            return
        try:
            complaints = self.host.request("complaints", 60)
        except (Raised, WorkerDied) as error:
            complaints = [f"no word of what was patched: {error}"]
        for text in complaints:
            one = Failure("isolation", Status.CHEATS, "worker", text, self.seed)
            if one not in self.found:
                self.found.append(one)

    def dismiss(self) -> None:
        """End the worker. Every worker that served is asked before, the timed ones too: a
        candidate may touch the interpreter in one of them only."""
        self.ask_guard()
        host, self.host = self.host, None
        if host is not None:
            host.close()

    def retreat(self) -> bool:
        """Free the device's memory and keep results on the CPU; False if they are there."""
        if not self.oracle.place.retreat():
            return False
        self._truths.clear()
        self._moved.clear()
        torch.cuda.empty_cache()
        return True

    def enter(self, state: str | None = None, training: bool | None = None) -> Host:
        """The worker, in the named state and mode."""
        name = self.base_state if state is None else state
        mode = self.oracle.training if training is None else training
        host = self.worker()
        if self._at != name or (self._dirty and not mode):
            host.request("load_state", self._patience(), state=self.state(name), how="strict")
            self._at, self._dirty = name, False
        elif self._dirty and self.remembers(mode):
            # buffers alone: a stale fold of the parameters has to stay one
            own = {k for k, _ in self.oracle.model.named_buffers()} | self.oracle.writes
            buffers = {k: v for k, v in self.state(name).items() if k in own}
            host.request("load_state", self._patience(), state=buffers, how="inplace")
        if self._worker_training != mode:
            host.request("move", how="train" if mode else "eval")
            self._worker_training = mode
        written = self.oracle.writes or any(True for _ in self.oracle.model.buffers())
        if written and (mode or self.remembers(mode)):
            self._dirty = True
        return host

    def remembers(self, training: bool) -> bool:
        """Whether the reference's outputs depend on what the call before has written: power
        iterations, moving averages. Each call then starts from the buffers of its state."""
        if training not in self._remembers:
            inputs = self.file_inputs()
            try:
                found = self.oracle.remembers(inputs, training, self.seed + 7)
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

    def entered(self, state: str, written: bool = False) -> None:
        """A test brought the worker into a state by its own means; `written`: but for buffers."""
        self._at, self._dirty = state, written

    def unheld(self, key: tuple[str, str], value: Any) -> bool:
        """Whether the worker still has to be given a state or inputs of this name; it counts as
        given from now on."""
        if self._held.get(key) is value:
            return False
        self._held[key] = value
        return True

    def forget_mode(self) -> None:
        """A test has changed the modes of the worker's modules."""
        self._worker_training = None

    def _patience(self) -> float:
        return float(self.limits.call_seconds + self.oracle.bytes / 1e8)

    def call(
        self,
        inputs: list[Any],
        state: str | None = None,
        training: bool | None = None,
        slot: str = "x",
        put: bool = True,
        shared: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """One call of the candidate; options as in `worker.Worker.do_call`. ``shared``: what is
        one tensor in ``inputs`` is one for the candidate, too."""
        host = self.enter(state, training)
        first = draws.firsts(inputs) if shared else []
        if put:
            host.request("put", self._patience(), slot=slot, inputs=inputs, first=first)
        reply: dict[str, Any] = host.request(
            "call", self._patience(), slot=slot, seed=self.seed + 7, **options
        )
        return reply

    # -- judging -------------------------------------------------------------------------------

    def fail(self, status: Status, case: str, detail: str, worst: Any = None) -> Failure:
        """A failure of the running test."""
        return Failure(self.test, status, case, detail, self.seed, worst)

    def check(
        self,
        case: str,
        inputs: list[Any],
        status: Status = Status.WRONG_NUMERICS,
        *,
        state: str | None = None,
        training: bool | None = None,
        limit: bool = False,
        **options: Any,
    ) -> Iterator[Failure]:
        """Call the candidate on a case and compare; nothing where the reference raises.

        limit: a raise is a limitation of the candidate, which the verdict tells.
        """
        truth = self.truth(inputs, state, training)
        if truth.eager is None:
            return
        try:
            reply = self.call(inputs, state, training, **options)
        except Raised as error:
            self.cases += 1
            if limit:
                self.assumptions.add(f"{self.test}: raises where the reference answers")
                self.notes.append(f"{self.test}: {case}: raised {str(error)[:200]}")
            else:
                yield self.fail(Status.CRASHED, case, f"raised {error}")
            return
        yield from self.compared(case, reply["outputs"], truth, status)

    def compared(
        self, case: str, outputs: Any, truth: Truth, status: Status = Status.WRONG_NUMERICS
    ) -> Iterator[Failure]:
        """Compare outputs with a truth by the one rule."""
        assert truth.eager is not None and truth.exact is not None
        self.cases += 1
        spread = self.spread(truth)
        results = compare.compare(
            case, outputs, truth.eager.outputs, truth.exact.outputs, spread, self.finite_only
        )
        if not all(r.agrees for r in results):
            results = ties.without(self, case, outputs, truth, results)
        for result in results:
            if result.errors is not None:
                self.errors.append(result.errors)
            if not result.agrees:
                kind = Status.WRONG_CONTRACT if result.structural else status
                yield self.fail(kind, case, result.reason, result.worst)

    def agrees(self, outputs: Any, truth: Truth) -> bool:
        """Whether outputs would pass against a truth."""
        if truth.eager is None or truth.exact is None:
            return False
        results = compare.compare(
            "", outputs, truth.eager.outputs, truth.exact.outputs, self.spread(truth)
        )
        return all(r.agrees for r in results)

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
            moved = self.oracle.shaken(truth.inputs, truth.training, seed, self.seed, 1.0, grads)
            values, exact = runs.named(moved), runs.named(truth.exact)
            errors = {n: runs.distance(values[n], t) for n, t in exact.items() if n in values}
            self._moved[id(truth)] = truth, errors  # the truth is kept: ids must not be reused
        return dict(self._moved[id(truth)][1])

    def _relative(self, name: str) -> float:
        squares = []
        for truth in self._truths.values():
            if truth.eager is None or truth.exact is None:
                continue
            theirs = compare.leaves(truth.eager.outputs)
            exacts = compare.leaves(truth.exact.outputs)
            for (other, a), (_, b) in zip(theirs, exacts, strict=True):
                if other == name and isinstance(b, torch.Tensor) and 0 < b.numel() < 4096:
                    error, scale = (a.to(b) - b).abs(), b.abs().max()
                    value = float((error / scale).square().mean())
                    if value == value and value < 1e-6:
                        squares.append(value)
        return (sum(squares) / len(squares)) ** 0.5 if squares else 0.0

    def died(self, error: WorkerDied) -> Failure:
        """The failure that a worker's death amounts to."""
        status = _DEATHS.get(error.why, Status.CRASHED)
        return self.fail(status, "worker", str(error))
