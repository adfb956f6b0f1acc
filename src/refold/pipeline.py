"""The way of the data, from a module to the text of its fast twin.

capture -> rewrite -> plan -> emit, once for each mode; then the emitted text is imported and timed
against the original, and a mode that is not faster keeps the original forward.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from refold import logs, twin
from refold.accuracy.samples import first_line
from refold.baselines import EAGER, contest
from refold.capture import Example, kept, set_modes
from refold.conv_rules import by_rule, by_rule_on_cpu, far_ahead
from refold.convolve import ON_CPU, Algorithm, Choice, Noted
from refold.derive import Derivation, Options, captures, derive
from refold.devices import DEVICES, DeviceModel, device_at_hand
from refold.emit.load import file_of, load_text
from refold.emit.module import Emission, Mode, emit
from refold.emit.story import story
from refold.emit.target import Target
from refold.emit.targets import target_of
from refold.introspect import FOLDS_FAIL, fallback_reason
from refold.ir import render
from refold.ir.seeds import undrawn
from refold.planner import convolutions_of, to_tune, tuned
from refold.rules import EXACT
from refold.schedule import TILE_COSTS, Schedule, ScheduleChooser, kernels_of
from refold.subclass import blank
from refold.tune import Tuned, is_timed
from refold.tune_images import TunedImages, largest, measured, processor

Progress = Callable[[str], None]


class OptimizeError(Exception):
    """Optimizing failed; the text is one line for the user."""


_MOST_TIMED_ON_GPU = 3  # convolutions where nobody asked for it: each is compiled several times
_CAPTURING = threading.Lock()  # captures must not run side by side


@dataclass(frozen=True)
class Result:
    """What optimizing a module gave.

    text: the emitted file, or None where every mode keeps the original forward. seconds: without
    compilation. by_timing: whether times on the device at hand chose among kernels.
    """

    text: str | None
    derivations: tuple[Derivation, ...]
    seconds: float
    build_seconds: float
    by_timing: bool = False

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(d.mode for d in self.derivations)

    @property
    def label(self) -> str:
        """The weakest promise of any mode: bits, reals or finite."""
        return max((m.label for m in self.modes if m.plan), key=EXACT.index, default=EXACT[0])

    def uncaptured(self, training: bool) -> bool:
        """Whether forward could not be captured in a mode, train or eval."""
        of_mode = "both", "train" if training else "eval"
        return any(d.uncaptured for d in self.derivations if d.mode.name in of_mode)

    def serves(self, training: bool) -> bool:
        """Whether there are kernels for a mode, train or eval."""
        of_mode = "both", "train" if training else "eval"
        return self.text is not None and any(not m.kept and m.name in of_mode for m in self.modes)

    @property
    def reasons(self) -> list[str]:
        return [m.kept for m in self.modes if m.kept]


def default_target() -> str:
    """The target at hand: the GPU's where PyTorch finds one that has a target, else the CPU's."""
    return device_at_hand().name


def default_float32() -> str:
    """The accuracy that PyTorch's flags ask of products of float32 on a GPU."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def default_conv_float32() -> str:
    """The same of convolutions, for which PyTorch has a flag of its own: cuDNN's, if it is used."""
    if not torch.backends.cudnn.enabled:
        return "ieee"
    newer = getattr(torch.backends.cudnn, "conv", None)
    older = newer is None and torch.backends.cudnn.allow_tf32
    return "tf32" if older or getattr(newer, "fp32_precision", "") == "tf32" else "ieee"


def target_for(
    name: str, float32: str | None = None, convolutions: Choice | None = None
) -> tuple[Target, DeviceModel]:
    """The back end called `name` ("cpu", "cuda:sm_90", ...) and the device that prices are for.

    convolutions: which of them kernels of our own compute; by default PyTorch's calls do.
    """
    if name not in DEVICES:
        raise OptimizeError(f"unknown target {name!r}; the targets are {', '.join(DEVICES)}")
    device, accuracy = DEVICES[name], float32 or default_float32()
    model = DeviceModel(device, accuracy, conv_float32=default_conv_float32())
    return target_of(device, accuracy), replace(model, convolutions=convolutions)


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
    found = written(module, example, source, title, target, device, options, progress)
    if found.text is None or not (options.measure or bind is not None):
        return found
    return timed(found, module, example, source, title, target, options, progress, bind)


@undrawn()
def written(
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    source: str,
    title: str,
    target: Target,
    device: DeviceModel,
    options: Options,
    progress: Progress = lambda text: None,
) -> Result:
    """What the algebra gives, whether or not it is faster; see `run`."""
    start = time.perf_counter()
    progress("capturing and rewriting")
    device = with_convolutions(device, options)
    captured = captures(module, example, options.as_it_is)
    first = None if device.convolutions is None else Noted(device.convolutions)
    derived = partial(derive, module, example, options=options, captured=captured, meters={})
    derivations = derived(replace(device, convolutions=first))
    by_timing = False
    if options.convolutions == "timed" or (options.convolutions == "auto" and options.tune):
        table = timed_convolutions(target, device, derivations, options, progress)
        if table is not None:
            by_timing = True
            device = replace(device, convolutions=table)
            if first is None or not first.alike(table):
                derivations = derived(device)
    if options.tune and target.device == "cuda":
        progress("timing ways to cut the products")
        derivations, by_times = tune(target, device, derivations, progress)
        by_timing = by_timing or by_times
    text = _emit(module, source, title, derivations, target)
    return Result(text, derivations, time.perf_counter() - start, 0.0, by_timing)


@undrawn()
def timed(
    found: Result,
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    source: str,
    title: str,
    target: Target,
    options: Options,
    progress: Progress = lambda text: None,
    bind: Callable[[str], Any] | None = None,
) -> Result:
    """What was written, compiled; a mode that is not faster keeps the original. See `run`."""
    assert found.text is not None
    text, derivations = found.text, found.derivations
    progress("compiling the kernels")
    bind = bind or (lambda t: bind_text(t, module))
    start = time.perf_counter()
    fast, build_seconds = bind(text), time.perf_counter() - start
    if options.measure:
        progress(f"timing against {', '.join((EAGER, *options.baselines))}")
    measured = tuple(_measured(d, module, fast, example, target, options) for d in derivations)
    kept = any(d.mode is not m.mode for d, m in zip(derivations, measured, strict=True))
    return replace(
        found,
        text=_emit(module, source, title, measured, target) if kept else text,
        derivations=measured,
        build_seconds=build_seconds,
    )


def with_convolutions(device: DeviceModel, options: Options) -> DeviceModel:
    """The device with our kernels for convolutions, where they are chosen by rule; a device that
    has a choice keeps it."""
    if device.convolutions is not None:
        return device
    if device.device.toolchain == "cpp":
        if options.convolutions == "library":
            return device
        own = options.convolutions == "own"
        return replace(device, convolutions=(lambda c: ON_CPU) if own else by_rule_on_cpu)
    rule = {"own": by_rule, "auto": far_ahead}.get(options.convolutions)
    kind, features = default_conv_float32(), device.device.features
    return device if rule is None else replace(device, convolutions=rule(kind, features))


def timed_convolutions(
    target: Target,
    device: DeviceModel,
    derivations: Sequence[Derivation],
    options: Options,
    progress: Progress = lambda text: None,
) -> Choice | None:
    """Which of a model's convolutions our kernels compute, as timing at hand says; None for none of
    them. Where timing fails, what is known is used.

    derivations: with the device as it is. options: tune says whether to time what is not known;
    by default a rule decides of the rest.
    """
    on_cpu = device.device.toolchain == "cpp"
    plans = [d.mode.plan for d in derivations if d.mode.plan is not None]
    wanted = [c for plan in plans for c in convolutions_of(plan, on_cpu)]
    if not wanted or not (on_cpu or torch.cuda.is_available()):
        return None

    def build(
        module: torch.nn.Module, x: torch.Tensor, algorithm: Algorithm | None
    ) -> torch.nn.Module:
        one = replace(device, convolutions=None if algorithm is None else lambda c: algorithm)
        with _CAPTURING:
            found = derive(module, [x], one, Options(accuracy=False))
            text = _emit(module, "# Model is Sequential.", "Sequential", found, target)
        return module if text is None else bind_for_class(text, module)

    by_default = options.convolutions == "auto"
    if on_cpu:
        table = TunedImages(processor(), torch.__version__, "ieee")
    else:
        library = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        table = TunedImages(torch.cuda.get_device_name(), library, default_conv_float32())
    if by_default or on_cpu:
        unknown = (c for c in wanted if not table.knows(c))
        wanted = largest(unknown) if on_cpu else largest(unknown, _MOST_TIMED_ON_GPU)
    if options.tune:
        progress("timing convolutions")
        try:
            features, kind = device.device.features, target.device
            table.fill(wanted, lambda c, allowed: measured(c, allowed, features, build, kind))
        except Exception as error:  # whatever it is, the rule is there
            progress(f"convolutions are as known, because timing failed: {first_line(error)}")
    rule = device.convolutions
    if (by_default or on_cpu) and rule is not None:
        return lambda c: table(c) if table.knows(c) else rule(c)
    return table if any(table(c) is not None for c in wanted) else None


def tune(
    target: Target,
    device: DeviceModel,
    derivations: Sequence[Derivation],
    progress: Progress = lambda text: None,
) -> tuple[tuple[Derivation, ...], bool]:
    """The derivations, their products cut as timing on the current GPU says, and whether it may say
    another thing of one of them the next time; see refold.tune.

    Where timing fails, out of memory above all, what is known is used.
    """
    products = [p for d in derivations if d.mode.plan is not None for p in to_tune(d.mode.plan)]
    by_times = any(is_timed(device, *p) for p in products)
    kernels = kernels_of(device.device.features)
    tables: dict[str, Tuned] = {}

    def build(module: torch.nn.Module, x: torch.Tensor, schedule: Schedule) -> torch.nn.Module:
        with _CAPTURING:
            found = derive(module.eval(), [x], device, Options(accuracy=False))
            found = _cut(found, device, lambda rows, cols, depth, kind: schedule)
            text = _emit(module, "# Model is Linear.", "Linear", found, target)
        assert text is not None
        return bind_for_class(text, module)

    try:
        name = torch.cuda.get_device_name()
        tables = {kind: Tuned(name, kernels, kind) for kind in TILE_COSTS}
        for kind, table in tables.items():
            table.fill((sizes for k, sizes in products if k == kind), build)
    except RuntimeError as error:
        progress(f"products are cut by rule, because timing failed: {first_line(error)}")
    if not tables:
        return tuple(derivations), by_times
    return _cut(derivations, device, lambda m, n, k, kind: tables[kind](m, n, k)), by_times


def _cut(
    derivations: Sequence[Derivation], device: DeviceModel, choose: ScheduleChooser
) -> tuple[Derivation, ...]:
    """The derivations with the products of their plans cut anew."""
    return tuple(
        replace(d, mode=replace(d.mode, plan=tuned(d.mode.plan, device, choose)))
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
    if logs.rewrites.isEnabledFor(logging.INFO):
        for line in story(Emission(module, source, modes, title)):
            logs.rewrites.info("%s", line)
    if all(m.plan is None for m in modes):
        return None
    return emit(Emission(module, source, modes, title), target)


def bind_text(text: str, module: torch.nn.Module) -> torch.nn.Module:
    """Import emitted text, and make a ModelNew that shares `module`'s parameters and modules."""
    namespace = load_text(text, file_of(type(module)))
    return adopt(namespace.ModelNew, module)


def bind_for_class(text: str, module: torch.nn.Module) -> torch.nn.Module:
    """`bind_text` for text that does not hold the class: a twin of `module` (see twin.py)."""
    return twin.bind(text, module)


def adopt(cls: type[torch.nn.Module], module: torch.nn.Module) -> torch.nn.Module:
    """An instance of `cls` with the very attributes of `module`, without running a constructor."""
    fast = blank(cls)
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
            set_modes(m, d.mode.name == "train", d.mode.captured.apart if d.mode.captured else ())
        call = Example.of(example)
        problem = fallback_reason(fast, call)
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
