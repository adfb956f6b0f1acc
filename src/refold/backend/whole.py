"""The fast twin of a module that cannot be written out as a file: its graphs, one by one."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.exc import TorchRuntimeError
from torch.utils import _pytree as pytree

from refold import twin
from refold.backend.compile import refold
from refold.backend.options import BackendOptions
from refold.backend.report import Report, again, backward_of, begun, broken, collected
from refold.capture import Example, kept
from refold.capture.generators import torchs_kept
from refold.growth import is_apart
from refold.subclass import Program

_log = logging.getLogger("refold")
_GLOBAL_HOOKS = [
    name
    for name, value in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and isinstance(value, dict)
]
# Dynamo runs each operation on sizes alone while it makes a graph. What fails there raises an error
# of its own class and text, where eager's is a ValueError or an IndexError, say, and batch norm has
# counted the call. So the original forward runs and raises what it raises.
_WRONG = "an operation does not take what it is given"


@dataclass
class ByGraphs:
    """Computes forward by torch.compile(backend="refold"). training: where gradients are wanted,
    too; else the original forward runs there. report: of the example calls. tolerant: a graph that
    PyTorch fails to compile runs as eager."""

    options: BackendOptions
    training: bool
    report: Report = field(default_factory=lambda: Report(()))
    tolerant: bool = True
    why: str | None = "it has not been called"
    _call: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def run(self, fast: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = twin.original(fast)
        forward = type(module).forward
        if not self.training and torch.is_grad_enabled() and _trains(module, args, kwargs):
            self.why = "gradients are wanted, and it was optimized without training=True"
            return forward(module, *args, **kwargs)
        if torch._C._get_tracing_state() is not None:
            self.why = "torch.jit.trace follows the call"  # which a compiled function refuses
            return forward(module, *args, **kwargs)
        if any(vars(torch.nn.modules.module)[name] for name in _GLOBAL_HOOKS):
            self.why = "a hook acts around the forward of every module"  # Dynamo leaves it out
            return forward(module, *args, **kwargs)
        if self._call is None:
            call = again(functools.partial(forward, module))
            self._call = torch.compile(call, backend=self._compiled)
        self.why = None
        config: Any = torch._dynamo.config
        before = config.skip_nnmodule_hook_guards
        try:
            return self._call(*args, **kwargs)
        except TorchRuntimeError as error:
            if not self.tolerant or begun(error):
                raise
            self.why = _WRONG
            return forward(module, *args, **kwargs)
        finally:
            if config.skip_nnmodule_hook_guards is not before:
                config.skip_nnmodule_hook_guards = before

    def _compiled(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """A later call may have sizes or types that PyTorch's own compiler does not bear."""
        # Dynamo, which asks behind this, is to see at each call whether parts have other hooks
        torch._dynamo.config.skip_nnmodule_hook_guards = False
        try:
            return refold(graph, inputs, options=self.options.given())
        except Exception as error:
            if not self.tolerant:
                raise
            line = (str(error).strip().splitlines() or ["no message"])[0]
            why = f"{type(error).__name__}: {line}"
            _log.error("refold: a graph runs as eager, because torch.compile failed: %s", why)
            return graph.forward

    @property
    def text(self) -> str:
        texts = [g.text for g in self.report.graphs if g.text is not None]
        return "\n\n".join(dict.fromkeys(texts))

    def fresh(self) -> ByGraphs:
        return ByGraphs(self.options, self.training, self.report)


@dataclass
class Compiled:
    """The original forward by torch.compile, which runs what no program takes."""

    _call: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def __call__(
        self,
        fast: torch.nn.Module,
        refused: Sequence[Program],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        module = twin.original(fast)
        if any(is_apart(p, args, kwargs, autocast=True) for p in refused):
            return type(module).forward(module, *args, **kwargs)
        if self._call is None:
            self._call = torch.compile(again(functools.partial(type(module).forward, module)))
        try:
            return self._call(*args, **kwargs)
        except TorchRuntimeError as error:
            if begun(error):
                raise
            return type(module).forward(module, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, ()


def by_graphs(
    module: torch.nn.Module, examples: Sequence[Example], options: BackendOptions, training: bool
) -> tuple[torch.nn.Module, Report]:
    """A twin whose graphs are compiled one by one, as the example calls show them, and what became
    of each; with `training` those of the backward, too. The module's modes, tensors, gradients
    and the random state are left as they were."""
    made = ByGraphs(options, training, tolerant=False)
    fast = twin.bind_graphs(made, module)
    parameters = list(module.parameters())
    with kept(module, parameters=True), torchs_kept(), collected() as found, broken() as stops:
        if training:
            module.train()
        for example in examples:
            args, kwargs = _copied((example.args, dict(example.kwargs)))
            with torch.set_grad_enabled(training):
                result = fast(*args, **kwargs)
                if training:
                    backward_of(result, parameters, (args, kwargs))
    made.report, made.tolerant = Report(tuple(found), tuple(stops)), True
    return fast, made.report


def _trains(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    tensors = [*module.parameters(), *pytree.tree_leaves((args, kwargs))]
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)


def _copied(value: Any) -> Any:
    """Arguments that forward may write to, such as caches."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return copy.deepcopy(leaf)

    return pytree.tree_map(one, value)
