"""The way of the data, from a module to the text of its fast twin.

capture -> rewrite -> plan -> emit, once for each mode; then the emitted text is imported and timed
against the original, and a mode that is not faster keeps the original forward.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from refold import twin
from refold.accuracy import Accuracy, Inaccurate, Meter
from refold.baselines import EAGER, Contest, contest
from refold.capture import Axes, Captured, CaptureError, Example, Widened, capture, kept, widen
from refold.devices import DEVICES, DeviceModel, device_at_hand
from refold.emit.held import held, own_bytes
from refold.emit.load import load_text
from refold.emit.module import Emission, Mode, emit
from refold.emit.target import Target
from refold.emit.targets import target_of
from refold.engine import Ban, Optimized, Step, optimize
from refold.ir import Node, render
from refold.layouts import images_in_channels, with_other_layouts
from refold.plan import Plan
from refold.planner import PlanPricer, to_tune, tuned
from refold.rules import EXACT
from refold.schedule import PACES, Cut, Schedule, kernels_of
from refold.tune import Tuned

Progress = Callable[[str], None]


class OptimizeError(Exception):
    """Optimizing failed; the text is one line for the user."""


@dataclass(frozen=True)
class Options:
    """strict: no rule that assumes finite values. unsafe: also rules that may lose NaN which the
    model makes of finite or masked inputs. accuracy: measure the rewritten graph's error beside
    eager's, and do without rules that make it larger. measure: drop modes that are not faster than
    eager and each of `baselines` (names in refold.baselines). bounded: leave out a baseline that
    takes long to compile, and do not compile one again for a model that is the same.
    tune: time the ways to cut products on the GPU at hand, where they are not known yet.
    seconds: spent on each comparison. memory: what is folded and packed in a mode may take so many
    times the bytes of the module's parameters; None for once, or 8 MiB where that is more.
    """

    strict: bool = False
    unsafe: bool = False
    accuracy: bool = True
    measure: bool = True
    tune: bool = False
    seconds: float = 3.0
    baselines: tuple[str, ...] = ()
    bounded: bool = False
    memory: float | None = None


@dataclass(frozen=True)
class Derivation:
    """One mode's way from its captured graph to its plan.

    contest: refold's times beside the baselines'; None where nothing was timed.
    dtype: what the model's values have in memory, by which a device's rates are chosen.
    accuracy: the measured error of the rewritten graph; None where it was not asked for.
    """

    mode: Mode
    optimized: Optimized | None
    contest: Contest | None = None
    dtype: torch.dtype | None = None
    accuracy: Accuracy | None = None


@dataclass(frozen=True)
class Result:
    """What optimizing a module gave.

    text: the emitted file, or None where every mode keeps the original forward. seconds: algebra,
    plan and emission together, compilation aside.
    """

    text: str | None
    derivations: tuple[Derivation, ...]
    seconds: float
    build_seconds: float

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(d.mode for d in self.derivations)

    @property
    def label(self) -> str:
        """The weakest promise of any mode: bits, reals or finite."""
        return max((m.label for m in self.modes if m.plan), key=EXACT.index, default=EXACT[0])

    @property
    def reasons(self) -> list[str]:
        return [m.kept for m in self.modes if m.kept]


def default_target() -> str:
    """The target at hand: the GPU's where PyTorch finds one that has a target, else the CPU's."""
    return device_at_hand().name


def default_float32() -> str:
    """The accuracy that PyTorch's flags ask of products of float32 on a GPU."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def target_for(name: str, float32: str | None = None) -> tuple[Target, DeviceModel]:
    """The back end called `name` ("cpu", "cuda:sm_90", ...) and what plans are made for."""
    if name not in DEVICES:
        raise OptimizeError(f"unknown target {name!r}; the targets are {', '.join(DEVICES)}")
    accuracy = float32 or default_float32()
    return target_of(DEVICES[name], accuracy), DeviceModel(DEVICES[name], accuracy)


def derive(
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    device: DeviceModel,
    options: Options,
) -> tuple[Derivation, ...]:
    """Capture, rewrite and plan each mode; one derivation where both modes are one function.

    example: a call, or its positional arguments.
    """
    budget = _Budget(device, options, module, Example.of(example))
    captured: list[Captured | CaptureError] = []
    for training in (True, False):
        if captured and not captured[0].reads_mode:  # the other mode does the same
            break
        try:
            # sizes that stood in the way of one mode stand in the other's
            known = captured[0].fixed if captured and isinstance(captured[0], Captured) else Axes()
            one = capture(module, example, training=training, fixed=known)
            captured.append(with_other_layouts(module, Example.of(example), one))
        except CaptureError as error:
            captured.append(error)
    if len(captured) == 1:
        return (_derived("both", captured[0], budget),)
    first, second = captured
    if (
        isinstance(first, Captured)
        and isinstance(second, Captured)
        and replace(second, training=True, constants=first.constants) == first
    ):
        return (_derived("both", first, budget),)
    modes = zip(("train", "eval"), captured, strict=True)
    found = [_derived(name, c, budget) for name, c in modes]
    if found[0].mode.kept and found[0].mode.kept == found[1].mode.kept:
        return (replace(found[0], mode=replace(found[0].mode, name="both")),)
    return tuple(found)


@dataclass(frozen=True)
class _Budget:
    """What a plan is made for, and how much memory it may keep."""

    device: DeviceModel
    options: Options
    module: torch.nn.Module
    example: Example

    @property
    def own(self) -> int:
        """The bytes of the module's parameters and buffers."""
        return own_bytes(self.module)

    @property
    def most(self) -> float:
        """How many bytes may be kept beside the parameters."""
        times = self.options.memory
        return max(self.own, SMALL_MEMORY) if times is None else times * self.own

    def held(self, plan: Plan) -> int:
        return sum(h.size for h in held(plan))


SMALL_MEMORY = 8 << 20  # bytes that nobody misses


def _derived(name: str, c: Captured | CaptureError, budget: _Budget) -> Derivation:
    """What becomes of one mode that was captured, or could not be."""
    if isinstance(c, CaptureError):
        return Derivation(Mode(name, None, None, kept=str(c)), None)
    obstacle = _unsupported(c)
    if obstacle is not None:
        return Derivation(Mode(name, None, None, kept=obstacle), None)
    wide = widen(c.graph)
    dtype = _dtype(c)
    images = images_in_channels(budget.module, budget.example, c)
    last = all(c.images_last) and bool(c.images_last)
    measures = None
    if budget.options.accuracy:
        measures = Meter(budget.module, budget.example, c, wide.graph)
    try:
        optimized, plan, accuracy = _planned(wide, dtype, budget, images, last, measures, 0.0)
    except Inaccurate as error:
        return Derivation(Mode(name, None, None, kept=str(error)), None)
    bytes_held = budget.held(plan)
    if bytes_held > budget.most:
        # what is kept gets a price, until what gains least for its bytes is given up
        gain = max(optimized.price_before - optimized.price_after, 1e-9) / bytes_held
        for price in (gain / 8, gain, gain * 8, gain * 64):
            optimized, plan, accuracy = _planned(wide, dtype, budget, images, last, measures, price)
            if budget.held(plan) <= budget.most:
                break
        else:
            reason = (
                f"folded and packed parameters would take {bytes_held:,} bytes beside the"
                f" {budget.own:,} of the parameters, and {budget.most:,.0f} are allowed (memory)"
            )
            return Derivation(Mode(name, None, None, kept=reason), None)
    steps: tuple[Step | str, ...] = optimized.steps
    if not steps and not plan.groups:
        reason = "nothing to rewrite or to fuse: every operation stays a call of PyTorch"
        return Derivation(Mode(name, None, None, kept=reason), None)
    label: str = optimized.label
    if wide.stored:
        steps = (ROUNDS_ONCE, *steps)
        label = "reals" if label == "bits" else label
    said = str(accuracy) if accuracy is not None and budget.options.measure else ""
    mode = Mode(name, c, plan, steps, label, accuracy=said, unsafe=budget.options.unsafe)
    return Derivation(mode, optimized, dtype=dtype, accuracy=accuracy)


def _planned(
    wide: Widened,
    dtype: torch.dtype | None,
    budget: _Budget,
    images: Mapping[Node, int],
    images_last: bool,
    measures: Meter | None,
    price: float,
) -> tuple[Optimized, Plan, Accuracy | None]:
    """The cheapest graph that is accurate, its plan, and its errors where they are measured.

    images: what lies channels-last. images_last: whether all images do. price: seconds a call for
    each byte that is folded.
    """
    device = replace(budget.device, dtype=dtype, hold=price)
    pricer = PlanPricer(device, wide.stored, wide.every, dtype, images, images_last)
    options, accuracy = budget.options, None

    def rewrite(banned: Sequence[Ban]) -> Optimized:
        return optimize(
            wide.graph,
            pricer,
            strict=options.strict,
            unsafe=options.unsafe,
            banned=banned,
        )

    if measures is None:
        optimized = rewrite(())
    else:
        optimized, accuracy = measures.accurate(rewrite)
    return optimized, pricer.plan(optimized.graph, optimized.originals), accuracy


ROUNDS_ONCE = (
    "values of 16 bits are computed in float32 and rounded where they are stored"
    " (round-once, reals)"
)


def _dtype(c: Captured) -> torch.dtype | None:
    """The dtype of a model: of its first tensor of floats, or else of its first parameter."""
    given = [f.dtype for f in c.tensors if f.dtype and f.dtype.is_floating_point]
    held = [n.dtype for n in c.graph.nodes() if n.op == "param" and n.is_float]
    return next(iter([*given, *held]), None)


def _unsupported(c: Captured) -> str | None:
    """Why a captured graph cannot be emitted, or None."""
    loose = set(c.constants) - c.attributes
    if loose:
        shapes = ", ".join(str(list(c.constants[name].shape)) for name in sorted(loose))
        return (
            "forward reads tensors that are neither arguments nor attributes of the module, or"
            f" writes out large ones (of shapes {shapes})"
        )
    if not c.tensors:
        return "forward takes no tensor"
    return None


def run(
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    source: str,
    title: str,
    target: Target,
    device: DeviceModel,
    options: Options,
    progress: Progress = lambda text: None,
    bind: Callable[[str], Any] | None = None,
) -> Result:
    """Optimize a module; see `Result`.

    example: a call of the module, or its positional arguments.
    bind: turns emitted text into a module of its own and answers with its ModelNew instance that
    shares `module`'s parameters. Folds are tried with it, even where nothing is measured.
    """
    start = time.perf_counter()
    progress("capturing and rewriting")
    derivations = derive(module, example, device, options)
    if options.tune and target.device == "cuda":
        progress("timing ways to cut the products")
        derivations = tune(target, device, derivations, progress)
    text = _emit(module, source, title, derivations, target)
    seconds = time.perf_counter() - start
    build_seconds = 0.0
    if text is not None and (options.measure or bind is not None):
        progress("compiling the kernels")
        bind = bind or (lambda t: bind_text(t, module))
        start = time.perf_counter()
        fast = bind(text)
        build_seconds = time.perf_counter() - start
        if options.measure:
            progress(f"timing against {', '.join((EAGER, *options.baselines))}")
        measured = tuple(_measured(d, module, fast, example, target, options) for d in derivations)
        if measured != derivations:
            slower = [d for d, m in zip(derivations, measured, strict=True) if d.mode is not m.mode]
            derivations = measured
            if slower:
                text = _emit(module, source, title, derivations, target)
    return Result(text, derivations, seconds, build_seconds)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def tune(
    target: Target,
    device: DeviceModel,
    derivations: Sequence[Derivation],
    progress: Progress = lambda text: None,
) -> tuple[Derivation, ...]:
    """The derivations, their products cut as timing on the current GPU says; see refold.tune.

    Where timing fails, out of memory above all, what is known is used.
    """
    plans = [d.mode.plan for d in derivations if d.mode.plan is not None]
    products = [p for plan in plans for p in to_tune(plan)]
    kernels = kernels_of(device.device.features)
    tables: dict[str, Tuned] = {}

    def build(module: torch.nn.Module, x: torch.Tensor, schedule: Schedule) -> torch.nn.Module:
        found = derive(module.eval(), [x], device, Options(accuracy=False))
        found = _cut(found, device, lambda rows, cols, depth, kind: schedule)
        text = _emit(module, "# Model is Linear.", "Linear", found, target)
        assert text is not None
        return bind_for_class(text, module)

    try:
        name = torch.cuda.get_device_name()
        tables = {kind: Tuned(name, kernels, kind) for kind in PACES}
        for kind, table in tables.items():
            table.fill((sizes for k, sizes in products if k == kind), build)
    except RuntimeError as error:
        progress(f"products are cut by rule, because timing failed: {_first_line(error)}")
    if not tables:
        return tuple(derivations)
    return _cut(
        derivations, device, lambda rows, cols, depth, kind: tables[kind](rows, cols, depth)
    )


def _cut(
    derivations: Sequence[Derivation], device: DeviceModel, cut: Cut
) -> tuple[Derivation, ...]:
    """The derivations with the products of their plans cut anew."""
    return tuple(
        replace(d, mode=replace(d.mode, plan=tuned(d.mode.plan, device, cut)))
        if d.mode.plan is not None
        else d
        for d in derivations
    )


def _emit(
    module: torch.nn.Module,
    source: str,
    title: str,
    derivations: Sequence[Derivation],
    target: Target,
) -> str | None:
    modes = tuple(d.mode for d in derivations)
    if all(m.plan is None for m in modes):
        return None
    return emit(Emission(module, source, modes, title), target)


def bind_text(text: str, module: torch.nn.Module) -> torch.nn.Module:
    """Import emitted text, and make a ModelNew that shares `module`'s parameters and modules."""
    namespace = load_text(text)
    return adopt(namespace.ModelNew, module)


def bind_for_class(text: str, module: torch.nn.Module) -> torch.nn.Module:
    """`bind_text` for text that does not hold the class: a twin of `module` (see twin.py)."""
    return twin.bind(text, module)


def adopt(cls: type[torch.nn.Module], module: torch.nn.Module) -> torch.nn.Module:
    """An instance of `cls` with the very attributes of `module`, without running a constructor."""
    fast = cls.__new__(cls)
    fast.__dict__.update(module.__dict__)
    return fast


def _measured(
    d: Derivation,
    module: torch.nn.Module,
    fast: torch.nn.Module,
    example: Example | Sequence[Any],
    target: Target,
    options: Options,
) -> Derivation:
    """The derivation with its timing; its mode keeps the original where that is not slower, or
    where what the kernels read cannot be computed.

    fast: shares the modules inside `module` and its buffers, which are left as they were.
    """
    if d.mode.plan is None:
        return d
    with kept(module), torch.no_grad():
        for m in (module, fast):
            m.train(d.mode.name == "train")
        call = Example.of(example)
        problem = obstacle(fast, call)
        if problem is not None and (options.measure or problem.startswith(FOLDS_FAIL)):
            return Derivation(replace(d.mode, plan=None, captured=None, kept=problem), None)
        if not options.measure:
            return d
        assert d.mode.captured is not None
        graph = d.mode.captured.graph
        found = contest(
            module,
            lambda: call.call(fast),
            call,
            target.device,
            options.seconds,
            options.baselines,
            f"{d.mode.name} for {target.name}: {render(graph)}" if options.bounded else None,
            sum(bool(n.inputs) for n in graph.nodes()),
        )
    if found.loss is not None:
        mode = replace(d.mode, plan=None, captured=None, kept=found.loss)
        return replace(d, mode=mode, contest=found)
    return replace(d, contest=found)


FOLDS_FAIL = "the folded parameters could not be computed"  # runtime/folds.py says why


def obstacle(fast: torch.nn.Module, example: Example | Sequence[Any]) -> str | None:
    """Why the example's call of `fast` would take the original forward in its present mode, or
    None. example: a call, or its positional arguments."""
    call = Example.of(example)
    reason = "the original forward is kept in this mode"
    for namespace, caches in _programs(fast):
        for name in ("train" if fast.training else "eval", "both"):
            if name in namespace["_refold_file"].modes:
                of_mode = namespace.get(f"_refold_prepare_{name}")
                prepare = of_mode or namespace["_refold_prepare"]
                given = inspect.signature(fast.forward).bind(*call.args, **call.kwargs)
                given.apply_defaults()
                found = prepare(fast, caches, name, *given.arguments.values())
                if not isinstance(found, str):
                    return None
                reason = found
    return reason


def _programs(fast: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The globals of each emitted text that a module tries, and what it has folded for it."""
    if twin.is_twin(fast):
        return [(vars(p.namespace), caches) for p, caches in twin.state_of(fast).programs]
    cls = next(c for c in type(fast).__mro__ if "_refold_made" in vars(c))
    space = cls.forward.__globals__  # type: ignore[attr-defined]
    return [(space, space["_refold_own_caches"](fast))]
