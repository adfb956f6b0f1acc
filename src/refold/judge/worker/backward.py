"""In a life: the ways in which programs go backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from refold.judge import draws
from refold.judge.worker.leaves import copied, digest, parameters, real, sparse, tensors

Tree = Any
_FEW = 64 << 20  # bytes of parameters that are compared before and after a backward
_SOME: dict[str, Callable[[torch.Tensor], Any]] = {  # where cotangents are none, or no numbers
    "columns": lambda g: g[..., :1].zero_(),
    "column": lambda g: g[..., 1:].zero_(),
    "rows": lambda g: g[::2].zero_(),
    "scales": lambda g: g[1::2].mul_(2.0**-20),
    "nan": lambda g: g[:1].fill_(float("nan")),
    "infinite": lambda g: g[:1].fill_(float("inf")),
}


class OtherOutputs(ValueError):
    """Cotangents that fit the reference's outputs do not fit these."""


def run(
    output: Tree,
    given: Tree,
    how: str,
    seed: int,
    only: int = -1,
    scale: float = 1.0,
    retain: bool = False,
    fine: bool = False,
    move: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> None:
    """Backward of the floating outputs, or of number ``only`` alone.

    how: ``random`` (dense cotangents), ``sum`` (expanded ones, of stride 0), ``strided`` (slices of
    a larger tensor), ``turned`` (the first axis and the last exchanged in memory), ``columns`` (but
    the first one), ``column`` (the first one alone), ``rows`` (every second one), ``scales`` (every
    second row far smaller), ``nan`` (no numbers in the first row), ``infinite`` (likewise),
    ``penalty`` (a term of squared gradients of the inputs), ``curvature`` (of squared second
    derivatives), ``grad`` (`torch.autograd.grad`, whose results become the inputs' gradients).
    fine: cotangents have as many bits as float32 holds; else so few that every type has them.
    move: what the last places of such cotangents become, as those of inputs do.

    Raises:
        RuntimeError: nothing wants gradients.
    """
    chosen = _wanting(output, only)
    if how == "penalty":
        penalize(output, [t for t in tensors(given) if t.requires_grad], seed, plain=True)
        return
    if how == "curvature":
        _curvature(chosen, [t for t in tensors(given) if t.requires_grad], seed)
        return
    losses = [_loss(o, how, seed + i, fine, move) * scale for i, o in chosen]
    if how == "grad":
        inputs = [t for t in tensors(given) if t.requires_grad]
        slopes = torch.autograd.grad(sum(losses), inputs, allow_unused=True)  # type: ignore[arg-type]
        for tensor, slope in zip(inputs, slopes, strict=True):
            tensor.grad = slope
        return
    # several losses at once, without grad_tensors: those import the compiler, which takes a second
    torch.autograd.backward(losses, retain_graph=retain)


def penalize(
    output: Tree, by: list[torch.Tensor], seed: int, scale: float = 2.0**-4, plain: bool = False
) -> None:
    """Backward of the sum of the outputs and of squares of its gradients by some tensors;
    ``plain``: of a plain sum, and squares as they are.

    Raises:
        RuntimeError: nothing wants gradients.
    """
    chosen = _wanting(output, -1)
    # factors that want gradients: a backward that can be taken once only says so then, and is
    # silent about sums
    factors = [torch.ones_like(o, requires_grad=True) for _, o in chosen]
    if plain:
        whole: Any = sum(real(o * f).sum() for f, (_, o) in zip(factors, chosen, strict=True))
    else:
        whole = sum(
            _loss(o * f, "random", seed + i) * scale
            for f, (i, o) in zip(factors, chosen, strict=True)
        )
    found = torch.autograd.grad(whole, by, create_graph=True, allow_unused=True)
    whole = whole + sum(real(s).square().sum() for s in found if s is not None)
    whole.backward()


def _curvature(chosen: list[tuple[int, torch.Tensor]], by: list[torch.Tensor], seed: int) -> None:
    """Backward of squares of second derivatives by some tensors, along one direction."""
    whole: Any = sum(_loss(o, "random", seed + i) for i, o in chosen)
    first = torch.autograd.grad(whole, by, create_graph=True, allow_unused=True)
    along: Any = sum(real(s * s.detach()).sum() for s in first if s is not None)
    second = torch.autograd.grad(along, by, create_graph=True, allow_unused=True)
    squares: Any = sum(real(s).square().sum() for s in second if s is not None)
    squares.backward()


def slopes(output: Tree, by: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """`torch.autograd.grad` of the outputs by some tensors, as it comes; of those on which the
    outputs do not depend zeros: who has several inputs in one product gives them for none."""
    losses = [_loss(o, "random", seed + i) for i, o in _wanting(output, -1)]
    found = torch.autograd.grad(sum(losses), by, allow_unused=True)  # type: ignore[arg-type]
    return [torch.zeros_like(t) if s is None else s for t, s in zip(by, found, strict=True)]


def _wanting(output: Tree, only: int) -> list[tuple[int, torch.Tensor]]:
    """The outputs that want gradients, with their numbers."""
    found = [(i, o) for i, o in enumerate(tensors(output)) if draws.inexact(o) and o.requires_grad]
    chosen = [(i, o) for i, o in found if only in (-1, i)]
    if not chosen:
        raise RuntimeError("no output requires grad")
    return chosen


def _loss(
    output: torch.Tensor,
    how: str,
    seed: int,
    fine: bool = False,
    move: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    output = real(output)
    if how == "sum":
        return output.sum()
    generator = torch.Generator().manual_seed(seed)
    shape = (*output.shape, 2) if how == "strided" else tuple(output.shape)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    parts = 2.0 ** (18 if fine else 5)
    drawn = ((drawn * parts).round() / parts).to(output.device, output.dtype)
    drawn = move(drawn) if fine and move is not None else drawn
    if how in _SOME and output.dim():
        _SOME[how](drawn)
    if how == "turned" and output.dim() > 1:
        # the gradient of transpose() is transposed, and dense
        return (output.transpose(0, -1) * drawn.transpose(0, -1).contiguous()).sum()
    if how != "strided":
        return (output * drawn).sum()
    # the gradient of stack() is a slice of the whole one: every second element
    return (torch.stack([output, torch.zeros_like(output)], dim=-1) * drawn).sum()


def gradients(
    model: nn.Module, output: Tree, cotangents: list[Any], inputs: list[Any]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The gradients of inputs and parameters, by name, from cotangents of the outputs; what the
    backward wrote to beside: inputs, cotangents, parameters of no more than `_FEW` bytes; and which
    gradients are sparse."""
    outs = list(tensors(output))
    shapes = [None if g is None else g.shape for g in cotangents]
    if len(outs) != len(shapes) or any(
        s not in (None, o.shape) for o, s in zip(outs, shapes, strict=True)
    ):
        raise OtherOutputs(f"expected outputs of shapes {shapes}, came {[o.shape for o in outs]}")
    pairs = [
        (o, g.to(o.device, copy=True))
        for o, g in zip(outs, cotangents, strict=True)
        if isinstance(g, torch.Tensor) and o.requires_grad
    ]
    if not pairs:
        return {}, [], []
    watched = {f"input {i}": t.detach() for i, t in enumerate(tensors(inputs))}
    watched |= {f"cotangent {i}": g for i, (_, g) in enumerate(pairs)}
    held = {n: p.detach() for n, p in parameters(model).items()}
    if sum(t.nbytes for t in held.values()) <= _FEW:
        watched |= held
    before = {name: t.clone() for name, t in watched.items()}
    if any(o.is_complex() or o.shape != g.shape or o.dtype != g.dtype for o, g in pairs):
        torch.autograd.backward([real(o * g).sum() for o, g in pairs])
    else:
        # What `torch.autograd.backward` does with ``grad_tensors``, but for importing the compiler,
        # which takes a second: the caller's own cotangents go in.
        engine: Any = torch.autograd.Variable._execution_engine
        tensors_, own = (tuple(held) for held in zip(*pairs, strict=True))
        further = {"allow_unreachable": True, "accumulate_grad": True}
        engine.run_backward(tensors_, own, False, False, (), **further)
    wrote = [name for name, t in before.items() if digest(t) != digest(watched[name].clone())]
    found = {f"input {i}": t.grad for i, t in enumerate(tensors(inputs))}
    found |= {n: p.grad for n, p in parameters(model).items()}
    thin = sparse(found)
    model.zero_grad(set_to_none=True)
    there = {k: copied(v) for k, v in found.items() if v is not None}
    return there, wrote, thin
