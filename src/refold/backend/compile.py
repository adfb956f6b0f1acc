"""The backend: each graph is found where it was kept, or it is chosen whose it is."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from refold.backend.inductor import copied, kind_of, parameters_of
from refold.backend.missing import Gradients
from refold.backend.options import BackendOptions


def refold(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The backend of `torch.compile(model, backend="refold", options={...})`.

    mode: as Inductor knows it. What it says of kernels applies to graphs that are Inductor's;
    "reduce-overhead" captures ours, too. options: see BackendOptions. Raises ValueError for an
    option that does not exist.
    """
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    from refold.backend.joint import with_compared_kept
    from refold.backend.kept import tagged
    from refold.backend.masks import plain_masks
    from refold.backend.second import Graph, with_second

    asked = BackendOptions.of(options)
    patches = dict(list_mode_options(mode)) if mode else {}
    patches |= {"triton.cudagraphs": True} if asked.graphs else {}
    patches |= {"fallback_random": True} if asked.eager_draws else {}
    settings = dict(patches)
    patches |= with_compared_kept()
    before = torch.compiler.config.cache_key_tag
    inner = functools.partial(_inner, asked, before, settings, _Pair())
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    trains = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
    if any(v.is_neg() for v in tensors):
        from refold.backend.report import GraphReport, tell

        kind = "forward" if trains else "inference"
        tell(GraphReport(kind, "pytorch", "an argument has the negative bit"), asked.report)
        return module  # compiled code reads past the bit, Inductor's as well
    graph = Graph(module) if trains and not patches.get("triton.cudagraphs") else None
    plain_masks(module, asked.strict)  # second derivatives are those of the graph as it was
    # AOTAutograd's cache is asked here, for all graphs of the module at once
    with _contained(), tagged(asked):
        run: Any = compile_fx(module, list(inputs), inner, config_patches=patches)
    return with_second(run, graph) if trains else run


@contextlib.contextmanager
def _contained() -> Iterator[None]:
    """An error leaves the process as it was.

    PyTorch 2.11 stops at a graph that enters inference mode. The mode ends when nothing holds the
    error any more, with the state of the middle of tracing: each call behind it would fail.
    """
    grad, include = torch.is_grad_enabled(), torch._C._dispatch_tls_local_include_set()
    # its end puts these keys back
    with torch._C._ForceDispatchKeyGuard(include, torch._C._dispatch_tls_local_exclude_set()):
        try:
            yield
        except BaseException as error:
            met: list[BaseException] = []
            found: BaseException | None = error
            while found is not None and not any(found is e for e in met):
                traceback.clear_frames(found.__traceback__)  # these hold the mode
                met.append(found)
                found = found.__cause__ or found.__context__
            torch._C._set_grad_enabled(grad)
            raise


class _Pair:
    """A forward until its backward has come, which is measured on what the forward saves."""

    forward: tuple[torch.fx.GraphModule, frozenset[str]] | None = None

    def kept(self, module: torch.fx.GraphModule, given: Mapping[str, Any]) -> Any:
        """The forward of a backward, with the names of its parameters; None for other graphs."""
        if kind_of(given) == "backward":
            found, self.forward = self.forward, None
            return found
        if kind_of(given) == "forward":
            self.forward = copied(module), parameters_of(module, "forward", given)
        return None


def _inner(
    options: BackendOptions,
    before: str,
    settings: Mapping[str, Any],
    pair: _Pair,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    **given: Any,
) -> Any:
    """Compile one graph of ATen: what Inductor calls in the place of its own compiler.

    before: the tag of PyTorch's caches as the user has it, which Inductor's own graphs keep.
    settings: of Inductor, that the call asked for. pair: the forward, where this is its backward.
    """
    from refold.backend.without import gradients_of

    forward, gradients = pair.kept(module, given), None
    if kind_of(given) == "backward":
        gradients = gradients_of(module, inputs, options, settings, before, forward, given)
    return compile_graph(options, before, forward, module, inputs, given, gradients)


def compile_graph(
    options: BackendOptions,
    before: str,
    forward: tuple[torch.fx.GraphModule, frozenset[str]] | None,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
    gradients: Gradients | None = None,
    name: str | None = None,
) -> Any:
    """The same, of a graph alone. forward: of which it is the backward, with the names of its
    parameters, where that is known. gradients: what a backward does without some of them. name: by
    which the graph is kept, in the place of what it is made of."""
    from refold.backend import kept
    from refold.backend.report import tell

    config: Any = torch.compiler.config
    with config.patch(cache_key_tag=before):
        key = kept.key_of(options, module, inputs, given)
        if key is not None and name is not None:
            key = kept.key_named(name)
        if key is not None and gradients is not None and gradients.source is not None:
            gradients.source.key = key[0]
        found = kept.find(key, module, inputs, given) if key is not None else None
        if found is not None:
            found.gradients = gradients
            return found
        from refold.backend.arguments import Forward
        from refold.backend.choose import chosen

        made_by = None if forward is None else Forward(*forward)
        run, report, lasting = chosen(options, module, inputs, given, made_by)
        tell(report, options.report)
        if isinstance(run, kept.Kept):
            run.gradients = gradients
        if key is not None and lasting and isinstance(run, kept.Kept):
            kept.keep(key, run, inputs)
    return kept.without_empty_key(run)
