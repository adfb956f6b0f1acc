"""`refold.optimize(module, *inputs)`: the fast twin of a module that already exists."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TypeVar

import torch

from refold import pipeline, twin
from refold.baselines import DEFAULT
from refold.baselines import every as every_baseline
from refold.pipeline import Options

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def optimize(
    module: ModuleT,
    *inputs: object,
    target: str | None = None,
    strict: bool = False,
    unsafe: bool = False,
    measure: bool = True,
    baselines: Sequence[str] | None = None,
    otherwise: str = "original",
    memory: float | None = None,
) -> ModuleT:
    """A module that computes the same function as `module` and shares its parameters.

    inputs: an example of forward's arguments; sizes that forward lets vary may vary later.
    target: "cpu", "cuda:sm_90" or "cuda:sm_80" (default: where the parameters are).
    strict: no rule that assumes finite values.
    unsafe: also rules that may lose a NaN which the model makes of finite or masked inputs.
    measure: time both modes, and keep the original forward in one that is not faster than eager and
    torch.compile. False skips this; nothing is timed.
    baselines: what is timed beside eager, names in refold.baselines; () for eager alone. By default
    torch.compile, unless the model is so large that this takes long; for a model of the same class
    and graph it is compiled once in a process.
    otherwise: what comes back where nothing is gained: "original", the module itself, or "compile",
    torch.compile(module).
    memory: what folded and packed parameters may take in a mode, as a multiple of the bytes of the
    parameters and buffers; by default 1, or 8 MiB where that is more.

    The answer is an instance of a subclass of `type(module)`, with the same parameters, buffers
    and submodules (the very same objects) and the same state_dict. The text that it runs is its
    attribute `refold_source`; how often it is as fast as each baseline stands in `refold_measured`,
    by mode. Where nothing is gained `module` itself comes back, with a warning that says why, and
    which baseline was faster.

    With REFOLD_DISABLE=1 in the environment `module` comes back as it is.

    Raises OptimizeError for what is no module, for an unknown target, baseline or `otherwise`, and
    where a parameter is not on the target's device.
    """
    if os.environ.get("REFOLD_DISABLE", "0") not in ("", "0"):
        return module
    if otherwise not in ("original", "compile"):
        raise pipeline.OptimizeError(
            f'expected otherwise="original" or "compile", came {otherwise!r}'
        )
    if memory is not None and not memory >= 0:
        raise pipeline.OptimizeError(f"expected memory to be 0 or more, came {memory!r}")
    for asked in baselines or ():
        if asked not in every_baseline():
            known = ", ".join(every_baseline())
            raise pipeline.OptimizeError(f"unknown baseline {asked!r}; the baselines are {known}")
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise pipeline.OptimizeError(f"expected a torch.nn.Module, got a {kind}: wrap it in one")
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [v for v in inputs if isinstance(v, torch.Tensor)]
    there = next((t.device for t in tensors if t.is_cuda), None)
    # what is timed, and which target is the default, are questions of the model's own GPU
    with torch.cuda.device(there) if there is not None else contextlib.nullcontext():
        options = Options(
            strict=strict,
            unsafe=unsafe,
            measure=measure,
            tune=measure,
            baselines=DEFAULT if baselines is None else tuple(baselines),
            bounded=baselines is None,
            memory=memory,
        )
        fast = _optimized(module, inputs, target or _target_at(there), options)
    if fast is module and otherwise == "compile":
        return torch.compile(module)  # type: ignore[return-value]
    return fast


def _optimized(
    module: ModuleT, inputs: tuple[object, ...], target: str, options: Options
) -> ModuleT:
    back, device = pipeline.target_for(target)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device.type != back.device:
            raise pipeline.OptimizeError(
                f"{name} is on {tensor.device}, the target is {back.name}: move the module first"
            )
    cls = type(module)
    result = pipeline.run(
        module,
        inputs,
        import_text(cls),
        f"The original is {cls.__module__}.{cls.__qualname__}",
        back,
        device,
        options,
        bind=lambda text: pipeline.bind_for_class(text, module),
    )
    if result.text is None:
        why = "; ".join(dict.fromkeys(result.reasons))
        warnings.warn(f"refold: the original module is kept: {why}", stacklevel=3)
        return module
    fast = pipeline.bind_for_class(result.text, module)
    twin.state_of(fast).measured = {
        d.mode.name: {name: t.ratio for name, t in d.contest.timings.items()}
        for d in result.derivations
        if d.contest is not None
    }
    return fast  # type: ignore[return-value]


def _target_at(device: torch.device | None) -> str:
    """The target of a model's GPU, which is the current device, or else of the CPU."""
    return "cpu" if device is None else pipeline.default_target()


def import_text(cls: type[torch.nn.Module]) -> str:
    """Text that binds Model to a class: an import where there is one to be had."""
    name, path = cls.__module__, cls.__qualname__
    try:
        found: object = sys.modules.get(name) or importlib.import_module(name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = None
    if found is cls and name != "__main__" and path.isidentifier():
        return f"from {name} import {path} as Model"
    return f"# Model is the class {path} of {name}, bound by refold.optimize."
