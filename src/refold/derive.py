"""From a module to a plan for each mode: capture -> rewrite -> plan, within a budget of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from refold.accuracy import Accuracy, Inaccurate, Meter
from refold.baselines import Contest
from refold.capture import FREE, Captured, CaptureError, Example, Widened, capture, widen
from refold.capture.values import GoesOn
from refold.devices import DeviceModel
from refold.draws import draws_as_eager
from refold.emit.held import held, own_bytes
from refold.emit.module import Mode
from refold.engine import Ban, Optimized, Step, optimize
from refold.ir import Node
from refold.ir.graph import draws_of
from refold.ir.seeds import undrawn
from refold.layouts import images_in_channels, with_orders, with_other_layouts, with_views
from refold.meanwhile import uncollected, unwarned
from refold.plan import ExternCall, Plan
from refold.planner import PlanPricer

# what computes convolutions: what timing says, or without it a rule, our kernels where they were
# measured to be far ahead; PyTorch's calls; our kernels where there are; what timing says of each
CONVOLUTIONS = ("auto", "library", "own", "timed")


@dataclass(frozen=True)
class Options:
    """strict: no rule that assumes finite values. unsafe: also rules that may lose NaN which the
    model makes of finite or masked inputs. accuracy: measure the rewritten graph's error beside
    eager's, and do without rules that make it larger. measure: drop modes that are not faster than
    eager and each of `baselines` (names in refold.baselines). bounded: leave out a baseline that
    takes long to compile, and do not compile one again for a model that is the same.
    tune: time the ways to cut products on the GPU at hand, where they are not known yet.
    convolutions: one of CONVOLUTIONS.
    seconds: spent on each comparison. memory: what is folded and packed in a mode may take so many
    times the bytes of the module's parameters; None for once, or 8 MiB where that is more.
    as_it_is: in the mode of the module those inside keep the modes that they are in.
    """

    strict: bool = False
    unsafe: bool = False
    accuracy: bool = True
    measure: bool = True
    tune: bool = False
    convolutions: str = CONVOLUTIONS[0]
    seconds: float = 3.0
    baselines: tuple[str, ...] = ()
    bounded: bool = False
    memory: float | None = None
    as_it_is: bool = False


@dataclass(frozen=True)
class Derivation:
    """One mode's way from its captured graph to its plan.

    contest: refold's times beside the baselines'; None where nothing was timed.
    dtype: what the model's values have in memory, by which a device's rates are chosen.
    accuracy: the measured error of the rewritten graph; None where it was not asked for.
    uncaptured: whether torch.export could not take the mode's forward, or its results are none
    that can be written out. once: whether forward sets an attribute that it reads, which it may do
    at its first call alone.
    """

    mode: Mode
    optimized: Optimized | None
    contest: Contest | None = None
    dtype: torch.dtype | None = None
    accuracy: Accuracy | None = None
    uncaptured: bool = False
    once: bool = False


Modes: TypeAlias = "tuple[Captured | CaptureError, ...]"


def captures(
    module: torch.nn.Module, example: Example | Sequence[Any], as_it_is: bool = False
) -> Modes:
    """What is captured of a module, or why it is not: of both modes in one, if they do the same,
    else of training first. It knows nothing of a device. as_it_is: see `Options`."""
    with undrawn(), uncollected, unwarned:
        return _captures(module, example, as_it_is)


def _captures(module: torch.nn.Module, example: Example | Sequence[Any], as_it_is: bool) -> Modes:
    captured: list[Captured | CaptureError] = []
    for training in (True, False):
        if captured and not captured[0].reads_mode:  # the other mode does the same
            break
        try:
            # sizes that stood in the way of one mode stand in the other's
            known = captured[0].bound if captured and isinstance(captured[0], Captured) else FREE
            own = as_it_is and training is module.training
            one = capture(module, example, training=training, bound=known, as_it_is=own)
            given = Example.of(example)
            one = with_orders(module, given, with_other_layouts(module, given, one))
            one = with_views(module, given, one)
            captured.append(draws_as_eager(module, given, one))
        except CaptureError as error:
            captured.append(error)
    return tuple(captured)


@uncollected
@unwarned
def derive(
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    device: DeviceModel,
    options: Options,
    captured: Modes | None = None,
    meters: dict[str, Meter] | None = None,
) -> tuple[Derivation, ...]:
    """Capture, rewrite and plan each mode; one derivation where both modes are one function.

    example: a call, or its positional arguments. captured: what `captures` gave for them. meters:
    what measured their rewritings before, by mode; those that are made are added.
    """
    known = {} if meters is None else meters
    budget = _Budget(device, options, module, Example.of(example), known)
    captured = captured or captures(module, example, options.as_it_is)
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
    meters: dict[str, Meter]

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
        kept = Mode(name, None, None, kept=str(c))
        return Derivation(kept, None, uncaptured=not isinstance(c, GoesOn), once=c.once)
    refusal = _unsupported(c, budget.device)
    if refusal is not None:
        return Derivation(Mode(name, None, None, kept=refusal), None)
    wide = widen(c.graph)
    dtype = _dtype(c)
    images = images_in_channels(budget.module, budget.example, c)
    last = all(c.images_last) and bool(c.images_last)
    measures = None
    if budget.options.accuracy:
        known = budget.meters.get(name)
        measures = known.again() if known else Meter(budget.module, budget.example, c, wide.graph)
        budget.meters[name] = measures
    try:
        optimized, plan, accuracy = _planned(wide, dtype, budget, images, last, measures, 0.0)
    except Inaccurate as error:
        return Derivation(Mode(name, None, None, kept=str(error)), None)
    drawn = draws_of(c.graph.nodes())
    if draws_of(s.node for s in plan.steps if isinstance(s, ExternCall)) != drawn:
        reason = "not all that forward draws would be drawn, in its order"
        return Derivation(Mode(name, None, None, kept=reason), None)
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


def _unsupported(c: Captured, device: DeviceModel) -> str | None:
    """Why a captured graph cannot be emitted for a device, or None."""
    given = (n.get("aligned") is False for n in c.graph.nodes())
    if device.device.toolchain != "cpp" and any(given):
        return (
            "forward drops elements of a value that it is given, or of a part of one: where that"
            " begins in memory decides what a GPU draws"
        )
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
