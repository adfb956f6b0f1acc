"""`refold.optimize(module, *args, **kwargs)`: the fast twin of a module that already exists."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from refold import growth, introspect, pipeline, twin
from refold.backend.options import BackendOptions
from refold.baselines import DEFAULT
from refold.baselines import every as every_baseline
from refold.capture import Example
from refold.derive import CONVOLUTIONS, Options
from refold.pipeline import OptimizeError

_log = logging.getLogger("refold")
ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)

# keywords of `optimize` that are no arguments of forward, and their defaults
OPTIONS: Mapping[str, Any] = {
    "examples": None,
    "target": None,
    "strict": False,
    "unsafe": False,
    "measure": True,
    "baselines": None,
    "otherwise": "original",
    "memory": None,
    "convolutions": CONVOLUTIONS[0],
    "training": False,
    "progress": None,
}


def optimize(module: ModuleT, /, *args: Any, **kwargs: Any) -> ModuleT:
    """A module that computes the same function as `module` and shares its parameters.

    args, kwargs: an example call, as `module(*args, **kwargs)` would be; sizes that forward lets
    vary may vary later. These keywords are options, not forward's:

    examples: a list of example calls, in the place of args and kwargs. Each is a tuple of
        positional arguments, a dict of keyword arguments, a pair of both, or one tensor. Kernels
        are made for each. A later call of another form (other optional arguments, dtypes, ranks,
        containers) gets kernels when it first comes, up to eight such forms; so do settings, parts
        and code that were changed, and other sizes where sizes are fixed, at the second such call
        in a row.
    target: a name of refold.devices.DEVICES, such as "cpu" or "cuda:sm_90" (default: where the
        parameters are).
    strict: no rule that assumes finite values.
    unsafe: also rules that may lose a NaN which the model makes of finite or masked inputs.
    measure: time both modes, and keep the original forward in one that is not faster than eager and
        torch.compile. False skips this; nothing is timed.
    baselines: what is timed beside eager, names in refold.baselines; () for eager alone. By default
        torch.compile, unless the model is so large that this takes long; for a model of the same
        class and graph it is compiled once in a process.
    otherwise: what comes back where nothing is gained: "original", the module itself, or "compile",
        torch.compile(module). So it is where calls of a fast module are not taken by the kernels,
        such as steps with a cache, training, and a mode in which nothing is gained.
    memory: what folded and packed parameters may take in a mode, as a multiple of the bytes of the
        parameters and buffers; by default 1, or 8 MiB where that is more.
    convolutions: what computes them: "library", PyTorch's calls; "own", kernels of refold where
        there are (docs/convolution.md); "timed", the faster of both for each, which is timed where
        `measure` is on. "auto" (the default) is "timed", of a
        model's largest ones on a GPU (three); a rule decides without timing: on a GPU for kernels
        of refold where these were measured to be far ahead.
    training: a twin that is fast where gradients are wanted, too: forward and backward of the
        example calls, in train mode, are compiled as `torch.compile(backend="refold")` does.
    progress: is called with a line of text as each long step begins.

    A module that cannot be written out as a file, such as one that returns a cache or branches on
    values, is compiled graph by graph in the same way (docs/backend.md): it is faster where some of
    its graphs are, nothing is folded in advance, and there is no file; `unsafe`, `memory`,
    `baselines` and `convolutions` say nothing there.

    Where forward has a parameter of such a name, the keyword is forward's, and the option is given
    as `refold_target=...` and so on, which always works.

    The answer is an instance of a subclass of `type(module)`, with the same parameters, buffers
    and submodules (the very same objects) and the same state_dict. The text that it runs is its
    attribute `refold_source`, what was rewritten is its `refold_report()`; how often it is as fast
    as each baseline stands in `refold_measured`, by mode. Where nothing is gained `module` itself
    comes back, with a warning that says why, and which baseline was faster.

    With REFOLD_DISABLE=1 in the environment `module` comes back as it is.

    Raises OptimizeError for what is no module, for lazy parameters that have no shape yet, for an
    unknown target, baseline or `otherwise`, for an example that forward does not take, and where a
    parameter is not on the target's device.
    """
    if os.environ.get("REFOLD_DISABLE", "0") not in ("", "0"):
        introspect.keep(module, "REFOLD_DISABLE is set")
        return module
    if isinstance(module, torch.nn.Module):
        module = twin.original(module)
    else:
        kind = type(module).__name__
        raise OptimizeError(f"expected a torch.nn.Module, got a {kind}: wrap it in one")
    if isinstance(module, torch.jit.ScriptModule):
        return _kept(module, "a compiled script has no forward in Python; optimize what it was")
    if isinstance(module, torch.fx.GraphModule):
        return _kept(module, "a GraphModule gets a new class with each change of its graph")
    if any(is_lazy(v) for v in _held(module)):
        raise OptimizeError("a lazy parameter has no shape yet: call the module once before")
    options, kwargs = _split(module, kwargs)
    _check_options(options)
    examples = _examples(module, args, kwargs, options["examples"])
    tensors = _held(module)
    leaves = pytree.tree_leaves([(e.args, dict(e.kwargs)) for e in examples])
    tensors += [v for v in leaves if isinstance(v, torch.Tensor)]
    there = next((t.device for t in tensors if t.is_cuda), None)
    target = options["target"] or _target_at(there)
    # what is timed, and which target is the default, are questions of the model's own GPU
    own = torch.cuda.device(there) if there is not None else contextlib.nullcontext()
    with growth.ALONE, own:
        asked = Options(
            strict=options["strict"],
            unsafe=options["unsafe"],
            measure=options["measure"],
            tune=options["measure"],
            baselines=DEFAULT if options["baselines"] is None else tuple(options["baselines"]),
            bounded=options["baselines"] is None,
            memory=options["memory"],
            convolutions=options["convolutions"],
            as_it_is=True,
        )
        said = options["progress"] or (lambda line: None)
        fast = _optimized(module, examples, target, asked, options["training"], said)
    if options["otherwise"] == "compile":
        if fast is module:
            return torch.compile(module)  # type: ignore[return-value]
        from refold.backend.whole import Compiled

        twin.state_of(fast).otherwise = Compiled()
    return fast


def _held(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _check_options(options: Mapping[str, Any]) -> None:
    if options["otherwise"] not in ("original", "compile"):
        came = repr(options["otherwise"])
        raise OptimizeError(f'expected otherwise="original" or "compile", came {came}')
    memory = options["memory"]
    if memory is not None and not memory >= 0:
        raise OptimizeError(f"expected memory to be 0 or more, came {memory!r}")
    if options["convolutions"] not in CONVOLUTIONS:
        known, came = ", ".join(CONVOLUTIONS), repr(options["convolutions"])
        raise OptimizeError(f"expected convolutions to be one of {known}, came {came}")
    for asked in options["baselines"] or ():
        if asked not in every_baseline():
            known = ", ".join(every_baseline())
            raise OptimizeError(f"unknown baseline {asked!r}; the baselines are {known}")


def _split(
    module: torch.nn.Module, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options, by default where they are not given, and the keywords that are forward's."""
    forwards = {
        p.name
        for p in inspect.signature(type(module).forward).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    options, rest = dict(OPTIONS), {}
    for name, value in kwargs.items():
        plain = name.removeprefix("refold_")
        if plain in OPTIONS and (plain != name or name not in forwards):
            options[plain] = value
        else:
            rest[name] = value
    return options, rest


def _packed(module: torch.nn.Module, example: Example) -> bool:
    """Whether the one argument is a tuple of all of forward's, as torch.export takes them."""
    if len(example.args) != 1 or example.kwargs or not isinstance(example.args[0], tuple | list):
        return False
    try:
        Example(tuple(example.args[0])).bind(module)
    except TypeError:
        return False
    return True


def _examples(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    listed: Sequence[Any] | None,
) -> list[Example]:
    """The example calls, which forward takes."""
    if listed is None:
        found = [Example(args, kwargs)]
    else:
        if args or kwargs:
            raise OptimizeError("expected either one example call or examples=[...], got both")
        found = [_example(e) for e in listed]
    if not found:
        raise OptimizeError("expected at least one example call in examples, got none")
    for example in found:
        try:
            example.bind(module)
        except TypeError as error:
            options, hint = ", ".join(OPTIONS), ""
            if _packed(module, example):
                hint = "; give the arguments one by one, not as a tuple"
            raise OptimizeError(
                f"the example is no call of forward: {error}{hint} (options of optimize are"
                f" {options})"
            ) from error
    return found


def _example(given: Any) -> Example:
    if isinstance(given, Example):
        return given
    if isinstance(given, dict):
        return Example((), given)
    if isinstance(given, (tuple, list)):
        pair = len(given) == 2 and isinstance(given[0], (tuple, list))
        if pair and isinstance(given[1], dict) and all(type(k) is str for k in given[1]):
            return Example(tuple(given[0]), given[1])
        return Example(tuple(given))
    return Example((given,))


def _optimized(
    module: ModuleT,
    examples: Sequence[Example],
    target: str,
    options: Options,
    training: bool,
    progress: pipeline.Progress,
) -> ModuleT:
    back, _ = pipeline.target_for(target)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    places = sorted({str(t.device) for _, t in tensors})
    if len(places) > 1:
        return _kept(module, f"its parameters lie on several devices ({', '.join(places)})")
    for name, tensor in tensors:
        if tensor.device.type != back.device:
            raise OptimizeError(
                f"{name} is on {tensor.device}, the target is {back.name}: move the module first"
            )
    if training:
        progress("compiling forward and backward")
        made, without = _made_by_graphs(module, examples, target, options, True)
        return made if made is not None else _kept(module, without)
    source = import_text(type(module))
    texts: list[str] = []
    measured: dict[str, dict[str, float]] = {}
    reasons: list[str] = []
    kept: dict[str, str] = {}
    uncaptured = served = False
    for example in examples:
        with _without_autocast():  # under autocast the original is taken, and nothing of ours runs
            result = growth.run(module, example, source, target, options, progress)
        reasons += result.reasons
        kept |= {m.name: m.kept for m in result.modes if m.kept}
        uncaptured |= result.uncaptured(module.training)
        served |= result.serves(module.training)
        if result.text is not None:
            texts.append(result.text)
            measured = measured or growth.measured(result)
    why = "; ".join(dict.fromkeys(reasons))
    if uncaptured and not served:  # the mode that the module is in: the other serves nobody now
        progress("compiling graph by graph")
        made, without = _made_by_graphs(module, examples, target, options, False, why)
        if made is not None:
            return made
        why = without
    if not texts:
        return _kept(module, why)
    if not served:
        mode = "train" if module.training else "eval"
        told = kept.get(mode, why)
        _log.warning("refold: the original forward is kept in %s mode: %s", mode, told)
    fast = twin.bind(list(dict.fromkeys(texts)), module)
    twin.state_of(fast).measured = measured
    twin.state_of(fast).kept = kept
    tried = {growth.form(e.args, e.kwargs) for e in examples}
    twin.state_of(fast).grow = growth.Growth(source, target, options, frozenset(tried))
    return fast  # type: ignore[return-value]


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _made_by_graphs(
    module: ModuleT,
    examples: Sequence[Example],
    target: str,
    options: Options,
    training: bool,
    why: str = "",
) -> tuple[ModuleT | None, str]:
    """A twin whose graphs are compiled one by one, or None where no graph is ours, and why. why:
    why there is no file."""
    from refold.backend.whole import by_graphs

    asked = BackendOptions(
        target=target,
        strict=options.strict,
        measure=options.measure,
        eager_draws=not training,
    )
    why = f"{why}; " if why else ""
    try:
        fast, report = by_graphs(module, examples, asked, training)
    except Exception as error:
        line = (str(error).strip().splitlines() or ["no message"])[0]
        return None, f"{why}torch.compile does not run it: {type(error).__name__}: {line}"
    if not any(g.by == "refold" for g in report.graphs):
        return None, f"{why}none of its graphs is ours: {report.reasons()}"
    return fast, ""  # type: ignore[return-value]


def _kept(module: ModuleT, why: str) -> ModuleT:
    """The module itself, with a warning that says why."""
    with contextlib.suppress(UserWarning):  # to keep a module is no error, whatever the filters
        warnings.warn(f"refold: the original module is kept: {why}", stacklevel=4)
    introspect.keep(module, f"the original module is kept: {why}")
    return module


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
