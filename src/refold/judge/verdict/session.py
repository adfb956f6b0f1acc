"""What the tests share: the candidate's worker, the oracle's memoized truths, what was found."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from refold.contract import Reference
from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.rule import beside, compare
from refold.judge.truth.oracle import Oracle
from refold.judge.truth.resident import RESIDENTS
from refold.judge.truth.truth import Truth
from refold.judge.verdict import facts, naming, otherwise
from refold.judge.verdict.owed import Asked
from refold.judge.verdict.purse import Purse, Spending
from refold.judge.verdict.room import Room
from refold.judge.verdict.truths import INITIAL, Truths
from refold.judge.verdict.verdict import ErrorStats, Failure, Status
from refold.judge.wire.host import Host, Limits, Raised, WorkerDied
from refold.judge.wire.memory import Starved
from refold.judge.wire.outside import Outside

if TYPE_CHECKING:
    from refold.judge.ask.request import How, Request

_DEATHS = {"timed out": Status.TIMED_OUT}
_RESPAWNS, _LOSSES = 2, 10
# tests of single calls that are made in either mode, and how long one may take then
_EITHER = {
    *("shapes", "layout", "hostile values", "far magnitudes", "one large sample", "far ids"),
    *("masks", "tails", "layout of each axis", "rows alike", "poison"),
}
_SHORT, _LONG = 0.001, 0.005


@dataclass
class Session(Truths, Spending):
    """One judgement in progress."""

    reference: Reference
    request: Request
    how: How
    oracle: Oracle
    finite_only: bool
    threads: int
    frugal: bool = False
    large: bool = False  # one call on the file's inputs takes long
    samples: tuple[int, int] | None = None  # how many there are, and on how many tests run
    fixed: bool = False  # no other weights can be loaded
    call_seconds: float = 0.0  # least wall time of one call of the reference
    purse: Purse = field(default_factory=Purse)  # what is spent of the budget
    single: float = 0.0  # estimated seconds of tests that state no cost
    test: str = ""
    cases: int = 0
    powered: int = 0
    errors: list[ErrorStats] = field(default_factory=list)
    learn: Callable[[], naming.Plain] = naming.Plain  # it may wait for another process's
    recorded: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    assumptions: set[str] = field(default_factory=set)
    info: dict[str, Any] = field(default_factory=dict)
    import_seconds: float = 0.0
    import_effort: float = 0.0  # of that, what the worker and this process were at work
    workers: str = ""
    host: Host | None = None
    owed: Asked | None = None  # what the worker has not been waited for
    deaths: int = 0
    processes: int = 1  # of the judge, that make tests
    strided: bool | None = None  # whether it lays its usual outputs otherwise than eager
    losses: int = 0  # workers that could use their device no more
    room: Room = field(default_factory=lambda: Room(torch.device("cpu")))
    folder: str = ""  # of the candidate's workers, in a sandbox
    missing: list[str] | None = None  # of the sandbox; None: there is none
    numbers: str | None = None  # where the reference's import left PyTorch's generator
    wanted: int = 0  # bytes that the judgement takes, by estimate
    apart: bool = False  # the present worker serves tests that it may not survive
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
    reload: Callable[..., Host] | None = None
    outside: Outside = field(default_factory=Outside)
    growing: Any = None  # what `leaks` measures while another worker is asked
    found: list[Failure] = field(default_factory=list)  # by the way, whatever test runs

    # -- what is asked -------------------------------------------------------------------------

    @property
    def candidate(self) -> Path:
        """The candidate's file."""
        return self.request.candidate

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
    def alone(self) -> bool:
        """Whether single tests are asked for: who names them waits for all of what they do."""
        return self.request.only is not None

    @property
    def limits(self) -> Limits:
        """Of the workers."""
        return self.how.limits

    @functools.cached_property
    def plain(self) -> naming.Plain:
        """What plain calls showed; only what is wrong asks for it."""
        return self.learn()

    # -- the worker ----------------------------------------------------------------------------
    def worker(self) -> Host:
        """The candidate's worker; started again after a death, at most twice, and where a kernel
        of the candidate failed so that its process can use the device no more."""
        self.collect()
        if self.host is not None and self.host.alive and self.host.lost:
            self.losses += 1
            self.dismiss()
            if self.losses > _LOSSES:
                raise WorkerDied("crashed", "kernels of the candidate failed too often")
        if self.host is None or not self.host.alive:
            if self.host is not None:
                self.deaths += not self.apart
                self.host.close()
            if self.deaths > _RESPAWNS:
                raise WorkerDied("crashed", "the candidate's worker died too often")
            assert self.reload is not None
            self.host = self.reload()
            self._at, self._worker_training, self._dirty = INITIAL, None, False
            self._held = {}
        return self.host

    def post(self, do: str, seconds: float, **arguments: Any) -> Asked:
        """Ask the present worker; the answer is waited for later."""
        assert self.host is not None
        self.host.post(do, seconds, **arguments)
        self.owed = Asked(self.host, seconds)
        return self.owed

    def collect(self) -> None:
        """Wait for what the worker was asked last."""
        owed, self.owed = self.owed, None
        if owed is not None:
            owed.collect()

    def ask_guard(self, other: Host | None = None) -> None:
        """Take down what the guard of the present worker, or of another one, saw."""
        self.collect()
        host = other or self.host
        if host is None or not host.alive:
            return
        try:
            complaints = host.request("complaints", 60)
        except Starved:
            return
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

    def relieve(self) -> None:
        """Memory is exhausted: free what can be made again, and keep results on the CPU."""
        self.dismiss()
        self._truths.clear()
        self._moved.clear()
        RESIDENTS.clear()
        self.oracle.place.retreat()

    def enter(self, state: str | None = None, training: bool | None = None) -> Host:
        """The worker, in the named state and mode."""
        name = self.base_state if state is None else state
        mode = self.oracle.training if training is None else training
        host, wait, there = self.worker(), self._patience(), self._at == name and not self._dirty
        unsaved = {} if there else self.unsaved()
        if self.fixed:
            self._at, self._dirty = name, False
        if self._at != name or (self._dirty and not mode):
            host.request("load_state", wait, state=self.state(name), how="strict", unsaved=unsaved)
            self._at, self._dirty = name, False
        elif self._dirty and self.remembers(mode):
            # buffers alone: a stale fold of the parameters has to stay one
            own = {k for k, _ in self.oracle.model.named_buffers()} | self.oracle.writes
            buffers = {k: v for k, v in self.state(name).items() if k in own}
            host.request("load_state", wait, state=buffers, how="inplace", unsaved=unsaved)
        if self._worker_training != mode:
            host.request("move", how="train" if mode else "eval")
            self._worker_training = mode
        written = self.oracle.writes or any(True for _ in self.oracle.model.buffers())
        if written and (mode or self.remembers(mode)):
            self._dirty = True
        return host

    @property
    def pristine(self) -> bool:
        """Whether the worker's module is as its constructor left it."""
        return self.worker() is not None and self._at == INITIAL and not self._dirty

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
        together: str = "",
        **options: Any,
    ) -> dict[str, Any]:
        """One call of the candidate; options as in `worker.Worker.do_call`. ``shared``: one tensor
        in ``inputs`` is one for the candidate, too; ``together``: see `draws.TOGETHER`."""
        host = self.enter(state, training)
        first = draws.firsts(inputs) if shared else []
        if put:
            given = {"slot": slot, "inputs": inputs, "first": first, "together": together}
            host.request("put", self._patience(), **given)
        reply: dict[str, Any] = host.request(
            "call", self._patience(), slot=slot, seed=self.seed + 7, **options
        )
        facts.switches(self, reply)
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
            if otherwise.refused(self, case, truth):
                return
            if limit:
                self.assumptions.add(f"{self.test}: raises where the reference answers")
                self.notes.append(f"{self.test}: {case}: raised {str(error)[:200]}")
            else:
                yield self.fail(Status.CRASHED, case, f"raised {error}")
            return
        yield from facts.seen(self, case, reply, truth)
        wrong = list(self.compared(case, reply["outputs"], truth, status))
        yield from wrong if wrong and not otherwise.refused(self, case, truth) else ()
        if training is None and self._in_eval(case):
            options |= {"state": state, "training": False, "limit": limit}
            yield from self.check(f"{case}, in eval mode", inputs, status, **options)

    def _in_eval(self, case: str) -> bool:
        """Whether what is asked in the mode in which the module is built is asked in eval mode,
        too: fast paths are there. Of a quick verdict models that take long would take twice as
        long: of these a secret half of the cases, or none."""
        if not (self.oracle.training and self.test in _EITHER):
            return False
        if self.alone or not self.quick or self.call_seconds < _SHORT:
            return True
        drawn = random.Random(f"{self.secret} eval {self.test} {case}").random()
        return self.call_seconds < _LONG and drawn < 0.5

    def compared(
        self, case: str, outputs: Any, truth: Truth, status: Status = Status.WRONG_NUMERICS
    ) -> Iterator[Failure]:
        """Compare outputs with a truth by the one rule."""
        self.cases += 1
        assert truth.plain is not None
        # numerics tells the errors of what agrees, too
        if self.test != "numerics" and compare.acquitted(outputs, truth.plain.outputs):
            return
        assert truth.exact is not None and truth.eager is not None
        spread = self.spread(truth)
        results = compare.compare(
            case, outputs, truth.eager.outputs, truth.exact.outputs, spread, self.finite_only
        )
        if not all(r.agrees for r in results) and not self.plain.never_right:
            results = otherwise.settled(self, case, outputs, truth, results)
        for result in results:
            if result.errors is not None:
                self.errors.append(result.errors)
            if not result.agrees:
                kind = Status.WRONG_CONTRACT if result.structural else self.named(status)
                yield self.fail(kind, case, result.reason, result.worst)

    def named(self, status: Status) -> Status:
        """The status of a wrong output."""
        return naming.value(self, status)

    def agrees(self, outputs: Any, truth: Truth) -> bool:
        """Whether outputs would pass against a truth."""
        if truth.exact is None or truth.eager is None:
            return False
        if not self.few_agree(outputs, truth):
            return False
        results = compare.compare(
            "", outputs, truth.eager.outputs, truth.exact.outputs, self.spread(truth)
        )
        return all(r.agrees for r in results)

    def few_agree(self, outputs: Any, truth: Truth) -> bool:
        """Whether outputs would pass on some samples: what fails on a few fails on all. True where
        outputs are few. ``outputs``: all, or those samples."""
        assert truth.exact is not None and truth.eager is not None
        trees = (outputs, truth.eager.outputs, truth.exact.outputs)
        if max([t.numel() for t in tensors(trees[1])], default=0) < 2 * beside.SAMPLED:
            return True
        few = [beside.some(tree) for tree in trees]
        return all(r.agrees for r in compare.compare("", few[0], few[1], few[2]))

    def died(self, error: WorkerDied) -> Failure:
        """The failure that a worker's death amounts to."""
        status = _DEATHS.get(error.why, Status.CRASHED)
        return self.fail(status, "worker", str(error))
