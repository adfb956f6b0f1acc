"""The judgement: every test on one candidate, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from refold import contract
from refold.judge.bench import Bench
from refold.judge.client import Crashed, Failed, TimedOut, Worker
from refold.judge.tests import TESTS
from refold.judge.verdict import Errors, Outcome, Status, Verdict


def judge(
    reference: str | Path,
    candidate: str | Path,
    *,
    sets: Mapping[str, str] | Iterable[str] = (),
    quick: bool = False,
    seed: int = 0,
    only: str | None = None,
    call_seconds: float = 300.0,
    load_seconds: float = 300.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Judge a candidate file against a reference file.

    sets: overrides of the reference's constants, `NAME=VALUE`. quick: the documented subset. only:
    one test by name. call_seconds, load_seconds: limits of one call and of the import, which may
    compile. Raises contract.ContractError if the reference is at fault, ValueError for an unknown
    test; whatever the candidate does ends in a verdict.
    """
    chosen = [t for t in TESTS if (only is None and (t.quick or not quick)) or t.name == only]
    if not chosen:
        raise ValueError(f"no test is called {only!r}; there are {[t.name for t in TESTS]}")
    start = time.monotonic()
    loaded = contract.load(reference, sets)
    inputs = loaded.inputs(seed + 1)
    outcomes: list[Outcome] = []
    errors: dict[str, Errors] = {}
    assumes: str | None = None
    with Worker(call_seconds, load_seconds) as worker:
        current = "import"
        try:
            progress("importing the candidate")
            path = str(Path(candidate).resolve())
            reply, _ = worker.ask("load", path=path, seconds=load_seconds)
            assumes = reply["assumes"]
            current = "construction"
            bench = Bench(loaded, worker, seed)
            bench.assumes = assumes
            current = "errors"
            errors = _errors(bench, inputs)
            for t in chosen:
                current = t.name
                progress(f"test {t.name}")
                outcomes += list(t.run(bench, inputs))
        except Failed as error:
            outcomes.append(Outcome(current, Status.CRASHED, f"the candidate raised {error}"))
        except TimedOut as error:
            outcomes.append(Outcome(current, Status.TIMED_OUT, str(error)))
        except Crashed as error:
            outcomes.append(Outcome(current, Status.CRASHED, str(error)))
    return Verdict(
        _status(outcomes),
        tuple(outcomes),
        errors,
        assumes,
        any(o.test == "gradients" and o.detail == "inference only" for o in outcomes),
        time.monotonic() - start,
    )


def _errors(bench: Bench, inputs: list[Any]) -> dict[str, Errors]:
    """Error of candidate and eager against float64 on the file's own inputs, in each mode."""
    found = {}
    for name, training in (("train", True), ("eval", False)):
        bench.train(training)
        trial = bench.try_inputs(inputs)
        if trial.difference.numerics:
            found[name] = Errors(*bench.errors(trial))
        bench.synchronise()
    return found


def _status(outcomes: list[Outcome]) -> Status:
    """The first failure that is not a lack of power; lack of power if there is nothing worse."""
    bad = [o.status for o in outcomes if o.status is not Status.ACCEPTED]
    worse = [s for s in bad if s is not Status.INCONCLUSIVE]
    return (worse or bad or [Status.ACCEPTED])[0]
