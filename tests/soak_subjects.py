"""What a soak runs programs on: a module, refold's output for it, and the judge's comparison."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils import _pytree as pytree

import refold
from agree import check_life, strides
from refold import pipeline, twin
from refold.api import import_text
from refold.derive import Options
from refold.judge.ask.given import Given, duplicate
from refold.judge.draws.inputs import scalars, shapes
from refold.judge.draws.layouts import layouts, otherwise_laid
from refold.judge.draws.trees import every, mapped, tensors
from refold.judge.rule import luck
from refold.judge.verdict import alongside, life, naming
from refold.judge.verdict.life import Life
from refold.judge.verdict.verdict import Failure
from refold.judge.worker.steps import FACT, Interpreter, Step
from soak_facts import Facts
from soak_models import Named, made
from torch_target import TorchTarget
from zoo import CASES

SEED = 7
FORMS = ("twin", "file")


COUNTS = Counter[str]()


class _Looking(Interpreter):
    """Sees of results whether they want gradients, and how they lie in memory; counts the calls of
    twins that the kernels computed, and the others."""

    def run(self, steps: Sequence[Step]) -> dict[str, Any]:
        self.undo: list[Callable[[], None]] = []
        self.plain = True
        try:
            return super().run(steps)
        finally:
            while self.undo:
                self.undo.pop()()

    def name_of_file(self, name: str, key: str, value: Any, model: str = "a") -> None:
        """Another value for a name that forward finds in its file, or for an item of it."""
        space = _own_class(self.models[model]).forward.__globals__
        there, at = (space[name], key) if key else (space, name)
        self.undo.append(functools.partial(there.__setitem__, at, there[at]))
        there[at] = value

    def item(self, path: str, name: str, key: str, value: Any, model: str = "a") -> None:
        """Another value in a dict that a part holds."""
        vars(self._part(path, model))[name][key] = value

    def patch(self, path: str, model: str = "a") -> None:
        """Another forward for the class of a part."""
        cls = _own_class(self._part(path, model))
        forward = cls.forward

        @functools.wraps(forward)
        def negative(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return pytree.tree_map_only(torch.Tensor, torch.neg, forward(self, *args, **kwargs))

        self.undo.append(functools.partial(setattr, cls, "forward", forward))
        cls.forward = negative  # type: ignore[method-assign]

    def call(self, inputs: str, label: str, model: str = "a", **more: Any) -> None:
        super().call(inputs, label, model, **more)
        # of other layouts a result may lie otherwise, and what is computed from it in the end
        self.plain = self.plain and all(t.is_contiguous() for t in tensors(self.given[label]))
        found = [t for t in pytree.tree_leaves(self.outputs[label]) if isinstance(t, torch.Tensor)]
        seen = [
            [t.requires_grad, t.is_inference(), strides(t) if self.plain else None] for t in found
        ]
        self._see(f"{label}, of what kind", FACT, seen)
        made = self.models[model]
        if twin.is_twin(made):
            COUNTS["original" if twin.state_of(made).reason else "kernels"] += 1


def _own_class(part: nn.Module) -> type[nn.Module]:
    """The class of a part as its file has it, below what refold makes of it."""
    made = type(part).__mro__
    return next(c for c in made if "forward" in vars(c) and "_refold_made" not in vars(c))


_LOOKS = mock.patch("refold.judge.truth.live.Interpreter", _Looking)


class Kept(Exception):
    """refold leaves the module as it is: nothing is compared."""


class Subject:
    """A module beside refold's output for it.

    Raises Kept where refold gives none.
    """

    def __init__(self, named: Named) -> None:
        self.named = named
        self.module, self.draw = made(named)
        torch.manual_seed(2)
        example = self.draw(6)
        try:
            with torch.no_grad():
                copy.deepcopy(self.module)(*copy.deepcopy(example))
        except Exception as error:
            raise Kept("eager does not take it") from error
        self.facts = replace(Facts.of(self.module), writes=_writes(self.module, example))
        self.fast, text = _fast(self.module, example, self.draw(1), named)
        self.finite = 'REFOLD_ASSUMES = "finite"' in text
        self.given = Given(copy.deepcopy(self.module), example, SEED)
        self.text = text

    def check_states(self) -> None:
        """Both modes, other batches and layouts, results' form and layout, what is written: see
        `agree.check_life`. Raises AssertionError."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(5)
            check_life(duplicate(self.fast), copy.deepcopy(self.module), self.draw, (6, 1, 9, 0))

    def inputs(self, program: Mapping[str, Any]) -> dict[str, list[Any]]:
        found = {}
        for i, (name, kind) in enumerate(sorted(program["inputs"].items())):
            torch.manual_seed(100 + i)
            try:
                found[name] = changed(self.draw(kind["batch"]), kind["how"], 100 + i)
            except (RuntimeError, IndexError, ValueError):
                found[name] = self.draw(6)
        torch.manual_seed(100)
        found["wrong"] = every(self.draw(6), _narrower)
        return found

    def states(self) -> dict[str, dict[str, torch.Tensor]]:
        """As constructed; moved by as much as the values are; and of other sizes."""
        generator = torch.Generator().manual_seed(3)
        first = {k: v.clone() for k, v in self.module.state_dict().items()}

        def moved(v: torch.Tensor, by: float) -> torch.Tensor:
            if not v.is_floating_point() or not v.numel():
                return v.clone()
            spread = float(v.double().square().mean().sqrt()) or 0.1
            step = torch.randn(v.shape, generator=generator) * spread * by
            new = v + step.to(v.dtype)
            return new.abs() if bool((v >= 0).all()) else new

        return {
            "s0": first,
            "s1": {k: moved(v, 1.0) for k, v in first.items()},
            "s2": {k: moved(v * 4 if v.is_floating_point() else v, 0.1) for k, v in first.items()},
        }

    def check(self, program: Mapping[str, Any]) -> None:
        """Run the program on eager, on float64 and on refold's output.

        Raises AssertionError where they disagree.
        """
        session = _Session(self)
        given, states = self.inputs(program), self.states()
        steps = list(program["steps"])
        inputs_of = tuple(given)
        while True:
            one = Life(
                "",
                tuple(steps),
                {n: given[n] for n in inputs_of},
                (),
                must=True,
                own=states,
                coarse=any(s.get("how") == "autocast" for s in steps),
            )
            with warnings.catch_warnings(), _LOOKS:
                warnings.simplefilter("ignore")
                theirs = life.eager(session, one)
            if theirs.raised is None:
                break
            del steps[theirs.raised["step"]]
            if not steps:
                return
        # of large values exp and log make infinities in eager, which simpler forms spare
        if any(p["how"] in ("one nan", "one inf", "large") for p in program["inputs"].values()):
            session.finite_only = self.finite
        with warnings.catch_warnings(), _LOOKS:
            warnings.simplefilter("ignore")
            failures: list[Any] = list(alongside.every(session, [(one, theirs)]))
        failures += [n for n in session.notes if "not tried" in n]
        if failures:
            raise AssertionError(f"{failures[0]}\nsteps that eager takes: {steps}")


@dataclass
class _Session:
    """As much of `judge.verdict.session.Session` as a life asks for; everything runs here."""

    subject: Subject
    test: str = "soak"
    finite_only: bool = False
    seed: int = SEED
    secret: int = SEED
    random: bool = True
    alone: bool = False
    quick: bool = False
    fine: bool = True
    plain: naming.Plain = field(default_factory=naming.Plain)
    cases: int = 0
    notes: list[str] = field(default_factory=list)
    assumptions: set[str] = field(default_factory=set)
    held: dict[str, Any] = field(default_factory=dict)
    limits: Any = field(default_factory=lambda: SimpleNamespace(call_seconds=60.0))

    def usual(self) -> luck.Usual:
        """Nothing is measured: subjects compute in float32 as it is."""
        return luck.Usual()

    @property
    def oracle(self) -> Any:
        given = self.subject.given
        return SimpleNamespace(
            builds=lambda init=None: given.make(SEED, init or []),
            device=torch.device("cpu"),
            rehearsal=None,
            bytes=0,
        )

    def unheld(self, key: Any, value: Any) -> bool:
        return True

    def worker(self) -> Any:
        def request(do: str, seconds: float, **arguments: Any) -> None:
            assert do == "hold"
            self.held.update(arguments)

        return SimpleNamespace(request=request)

    def post(self, do: str, seconds: float, **arguments: Any) -> Any:
        """What is asked is done where it is waited for."""
        assert do == "live"
        fast = self.subject.fast
        run = _Looking(
            lambda: duplicate(fast),
            self.held["states"],
            self.held["inputs"],
            arguments["seed"],
            torch.device("cpu"),
        )
        return SimpleNamespace(answer=lambda: run.run(arguments["steps"]))

    def fail(self, status: Any, case: str, detail: str, worst: Any = None) -> Failure:
        return Failure(self.test, status, case, detail, self.seed, worst)


def _writes(module: nn.Module, example: list[Any]) -> bool:
    one = copy.deepcopy(module).eval()
    with torch.no_grad():
        one(*copy.deepcopy(example))
    pairs = zip(one.state_dict().values(), module.state_dict().values(), strict=True)
    return any(not torch.equal(a, b) for a, b in pairs)


def _grow(fast: nn.Module, one: list[Any]) -> None:
    """A call of one sample in each mode, where eager takes it; the state is left as it was."""
    for training in (False, True):
        with pipeline.kept(fast), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(RuntimeError, ValueError, IndexError, AssertionError):
                fast.train(training)(*copy.deepcopy(one))


def _fast(
    module: nn.Module, example: list[Any], one: list[Any], named: Named
) -> tuple[nn.Module, str]:
    mine = copy.deepcopy(module)
    if named.form == "twin" and named.target == "cpu":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = refold.optimize(mine, *example, measure=False)
        if not twin.is_twin(fast):
            raise Kept("kept")
        if named.grown:
            _grow(fast, one)
        twin.state_of(fast).grow = None  # each further form takes seconds; copies would repeat it
        return fast, fast.refold_source
    name = "cpu" if named.target == "torch" else named.target
    target, device = pipeline.target_for(name)
    source = import_text(type(module)) if named.text in CASES else named.text
    result = pipeline.run(
        mine,
        example,
        "# Model is bound here." if named.form == "twin" else source,
        "Model",
        TorchTarget() if named.target == "torch" else target,
        device,
        Options(measure=False),
    )
    if result.text is None:
        raise Kept("; ".join(result.reasons))
    if named.form == "twin":
        return twin.bind(result.text, mine), result.text
    return pipeline.bind_text(result.text, mine), result.text


def changed(inputs: list[Any], how: str, seed: int) -> list[Any]:
    """Inputs of a kind of `soak_programs.HOW`."""
    kind, _, number = how.partition(" ")
    if kind == "shape":  # of one axis, or of all of its size
        others = [x for _, x in shapes(inputs, quick=False)]
        return others[int(number) % len(others)] if others else inputs
    if how == "another number":
        return next((x for _, x in scalars(inputs)), inputs)
    if how == "channels last":
        return [every(v, otherwise_laid) for v in inputs]
    laid = {
        "every second column": "every second column",
        "transposed": "transposed",
        "a slice": "slice of wider rows",
        "expanded": "expanded row",
    }
    if how in laid:
        return dict(layouts(inputs))[laid[how]]
    values: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "plain": lambda t: t,
        "large": lambda t: t * 1024,
        "small": lambda t: t / 2**20,
        "far": lambda t: t + 100,
        "zeros": torch.zeros_like,
        "alike": lambda t: torch.full_like(t, 0.5),
        "positive": torch.abs,
        "one nan": lambda t: _one(t, float("nan")),
        "one inf": lambda t: _one(t, float("inf")),
    }
    found: list[Any] = mapped(inputs, values[how])
    return found


def _one(t: torch.Tensor, value: float) -> torch.Tensor:
    t = t.clone()
    if t.numel():
        t.view(-1)[t.numel() // 2] = value
    return t


def _narrower(t: torch.Tensor) -> torch.Tensor:
    return t[..., :-1].contiguous() if t.is_floating_point() and t.dim() else t


@functools.lru_cache(maxsize=8)
def subject(named: Named) -> Subject | None:
    """One for each name; None where refold keeps the module, or eager does not take its inputs."""
    try:
        return Subject(named)
    except Kept:
        return None
