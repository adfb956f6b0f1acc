"""In a life: the forms in which programs call a module."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils import checkpoint

from refold.judge import draws
from refold.judge.draws.trees import each
from refold.judge.worker.leaves import real, tensors

Tree = Any
Form = Callable[[nn.Module, list[Any], torch.device, bool], Any]
_MOVED = 1.5  # of parameters that are given from outside


def call(
    module: nn.Module,
    given: list[Any],
    words: Sequence[str],
    how: str,
    device: torch.device,
    wide: bool,
) -> Tree:
    """One forward in a form of `FORMS`, or a plain one; ``words``: names of the last arguments,
    which are given by keyword then."""
    if how:
        return FORMS[how](module, given, device, wide)
    first = len(given) - len(words)
    return module(*given[:first], **dict(zip(words, given[first:], strict=True)))


def _inference(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    with torch.inference_mode():
        return module(*given)


def _functional(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """With larger parameters that are not the module's own."""
    larger = {n: p.detach() * _MOVED for n, p in module.named_parameters()}
    return torch.func.functional_call(module, larger, tuple(given))


def _autocast(to: torch.dtype) -> Form:
    def called(module: nn.Module, given: list[Any], device: torch.device, wide: bool) -> Tree:
        with torch.autocast(device.type, to, enabled=not wide):
            return module(*given)

    return called


def _default(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Where float64 is the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return module(*given)
    finally:
        torch.set_default_dtype(before)


def _threads(count: int) -> Form:
    """With another number of PyTorch's threads."""

    def called(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return module(*given)
        finally:
            torch.set_num_threads(before)

    return called


def _vmap(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Of two sets of inputs at once; the second one's floats are half as large."""
    axes, both = _two(given)
    return torch.func.vmap(module, in_dims=axes)(*both)


def _two(given: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Which axes of the inputs count two sets of them; both sets."""
    both = [draws.mapped(v, lambda t: torch.stack([t, t * 0.5])) for v in given]
    axes = [
        each(v, lambda t: 0 if isinstance(t, torch.Tensor) and t.is_floating_point() else None)
        for v in given
    ]
    return tuple(axes), both


def _vmap_of_weights(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Of two sets of weights at once, as of an ensemble: larger ones, and larger ones still."""
    held = {n: p.detach() for n, p in module.named_parameters()}
    both = {n: torch.stack([p * 1.25, p * _MOVED]) for n, p in held.items()}
    called = functools.partial(torch.func.functional_call, module)
    return torch.func.vmap(lambda weights: called(weights, tuple(given)))(both)


def _twice(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """What `_vmap_of_weights` gives of who has the module's own weights alone."""
    return draws.every(module(*given), lambda t: torch.stack([t, t]))


def _negated(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """The same numbers, whose memory holds others: the negative bit, which ``imag`` of conjugates
    has, turns them about."""
    return module(*[draws.mapped(v, lambda t: torch._neg_view(-t)) for v in given])


def _as_memory(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """What `_negated` gives to who reads memory alone."""
    return module(*[draws.mapped(v, lambda t: t + (-2 * t).detach()) for v in given])


def _conjugated(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """The same numbers, whose memory holds their conjugates."""
    return module(*[draws.every(v, lambda t: torch.conj_physical(t).conj()) for v in given])


def _inside(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """As within a network: inputs are results of other operations."""
    return module(*[draws.mapped(v, torch.clone) for v in given])


def _views(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Inputs are views of others, as slices of a batch are."""
    return module(*[draws.mapped(v, lambda t: t[...]) for v in given])


def _joined(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """One tensor wherever several have its shape and type."""
    first: dict[Any, torch.Tensor] = {}
    found = [draws.every(v, lambda t: first.setdefault((t.shape, t.dtype), t)) for v in given]
    return module(*found)


def _expanded(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """The first sample of each input for all samples, in its memory alone."""
    return module(*[draws.mapped(v, _first) for v in given])


def _first(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(t.shape) if t.dim() > 1 else t


def _tangents(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Forward mode: the outputs' tangents along a direction of all inputs.

    Raises:
        RuntimeError: outputs want no gradients and have no tangents, or an operator has no forward
            mode.
    """
    # what `make_dual` does but for importing a compiler of decompositions, which takes a second
    vf: Any = torch._VF
    ad: Any = forward_ad
    level = ad.enter_dual_level()
    try:
        number = iter(range(1 << 20))

        def dual(t: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = vf._make_dual(t, _direction(t, next(number)), level=level)
            return made

        try:
            outputs = module(*[draws.mapped(v, dual) for v in given])
        except NotImplementedError as error:  # of an operator; it may have gradients all the same
            raise RuntimeError(f"no forward mode: {error}") from error
        floats = [t for t in tensors(outputs) if t.is_floating_point()]
        pairs = [vf._unpack_dual(t, level=level) for t in floats]
        found = [None if tangent is None else tangent.detach().clone() for _, tangent in pairs]
        if all(t is None for t in found) and not any(t.requires_grad for t in floats):
            raise RuntimeError("no output requires grad, and none has a tangent")
        return [
            torch.zeros_like(t.detach()) if tangent is None else tangent
            for (t, _), tangent in zip(pairs, found, strict=True)
        ]
    finally:
        ad.exit_dual_level(level=level)


def _direction(t: torch.Tensor, number: int) -> torch.Tensor:
    """Of few bits: every dtype holds the same numbers."""
    generator = torch.Generator().manual_seed(number + 1)
    drawn = torch.randn(t.shape, generator=generator, dtype=torch.float64)
    return ((drawn * 32).round() / 32).to(t.device, t.dtype)


def _by_name(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """Its forward, as who wraps a module may call it."""
    return module.forward(*given)


def _checkpointed(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """What is needed for the backward is computed again there."""
    return checkpoint.checkpoint(module, *given, use_reentrant=False)


class _Ended(Exception):
    """Ends a call from within."""


def _ends_early(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """A call that ends where the first tensor is saved for a backward, as a checkpoint's second one
    ends where the last is."""

    def end(_: torch.Tensor) -> None:
        raise _Ended

    with contextlib.suppress(_Ended), torch.autograd.graph.saved_tensors_hooks(end, torch.clone):
        module(*given)
    return []


def _saved_elsewhere(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """What is saved for the backward lies elsewhere meanwhile, as on another device."""
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        return module(*given)


def _slopes(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """`torch.func.grad` of the outputs by the floating inputs."""
    return _transformed(module, given)


def _slopes_of_vmap(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """`torch.func.grad` of a `torch.func.vmap`."""
    axes, both = _two(given)
    return _transformed(torch.func.vmap(module, in_dims=axes), both)


def _vmap_of_slopes(module: nn.Module, given: list[Any], _: torch.device, __: bool) -> Tree:
    """`torch.func.vmap` of a `torch.func.grad`, as for the gradient of each sample."""
    axes, both = _two(given)
    slopes = functools.partial(_slopes, module)
    return torch.func.vmap(lambda *held: slopes(list(held), _, __), in_dims=axes)(*both)


def _transformed(called: Callable[..., Any], given: list[Any]) -> Tree:
    """What `torch.func.grad` does, but for importing a compiler, which takes seconds. Of the slopes
    few bits: whether they are there is asked, their last digits are compared elsewhere."""
    functorch: Any = torch._C._functorch
    level = functorch._grad_increment_nesting()
    allowed = functorch.get_inplace_requires_grad_allowed()
    try:
        functorch.set_inplace_requires_grad_allowed(True)
        held = [draws.every(v, lambda t: functorch._wrap_for_grad(t, level)) for v in given]
        by = [t.requires_grad_() for t in tensors(held) if t.is_floating_point()]
        functorch.set_inplace_requires_grad_allowed(allowed)
        with torch.enable_grad():
            whole = _summed(called(*held))
            slopes: tuple[Any, ...] = (None,) * len(
                by
            )  # what does not hang on them has slopes of zero
            if whole.requires_grad:
                slopes = torch.autograd.grad(whole, by, create_graph=True, allow_unused=True)
        found = [torch.zeros_like(t) if s is None else s for s, t in zip(slopes, by, strict=True)]
        return [functorch._unwrap_for_grad(t, level).detach().to(torch.bfloat16) for t in found]
    finally:
        functorch.set_inplace_requires_grad_allowed(allowed)
        functorch._grad_decrement_nesting()


def _summed(outputs: Tree) -> torch.Tensor:
    """One number, of which no slope is the same everywhere. (No random numbers: vmap refuses.)"""
    found = [real(t) for t in tensors(outputs) if draws.inexact(t)]
    if not found:
        raise RuntimeError("no output requires grad")
    whole: Any = sum((t * _waves(t)).sum() for t in found)
    return whole  # type: ignore[no-any-return]


def _waves(t: torch.Tensor) -> torch.Tensor:
    """Factors of few bits, which every dtype holds, of either sign."""
    count = torch.arange(t.numel(), device=t.device, dtype=torch.float64)
    return ((torch.sin(count * count + 1) * 32).round() / 32).to(t.dtype).reshape(t.shape)


FORMS: dict[str, Form] = {
    "by name": _by_name,
    "checkpoint": _checkpointed,
    "ends early": _ends_early,
    "saved elsewhere": _saved_elsewhere,
    "grad": _slopes,
    "grad of vmap": _slopes_of_vmap,
    "vmap of grad": _vmap_of_slopes,
    "inference": _inference,
    "functional": _functional,
    "autocast": _autocast(torch.bfloat16),
    "autocast in float16": _autocast(torch.float16),
    "default": _default,
    "one thread": _threads(1),
    "three threads": _threads(3),
    "vmap": _vmap,
    "vmap of weights": _vmap_of_weights,
    "twice": _twice,
    "negative bit": _negated,
    "negative": _as_memory,
    "conjugate bit": _conjugated,
    "inside": _inside,
    "views": _views,
    "joined": _joined,
    "expanded": _expanded,
    "tangents": _tangents,
}
