"""Calls in random forms (random_layouts.py): a fast module beside its original."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from agree import Make, check_form, check_values, double, oracle_of, tensors
from random_layouts import formed, parameters_formed
from refold import introspect

Call = tuple[nn.Module, Any]


class Differ(AssertionError):
    """They do not agree; the text says in which forms."""


def check_forms(
    fast: nn.Module, module: nn.Module, make: Make, seed: int, marks: bool = True
) -> bool:
    """One call of copies of both on arguments in equal forms; whether it was fast.

    Results, their strides, class, marks and what shares memory; errors; buffers and random numbers;
    arguments stay as they were. With gradients those of parameters and of arguments, too.
    """
    torch.manual_seed(seed)
    plain, grad, told = make(), seed % 4 == 1, []
    sides = [copy.deepcopy(module), copy.deepcopy(fast)]
    if seed % 3 == 0 and not grad:  # eager's own gradients read statistics as if in order
        told = [parameters_formed(side, seed) for side in sides].pop()
    inputs, forms = zip(*(formed(copy.deepcopy(plain), seed, marks) for _ in sides), strict=True)
    words = f"seed {seed}, gradients {grad}, {forms[0]}, {told}"
    calls: list[Call] = list(zip(sides, inputs, strict=True))
    exact = double(pytree.tree_map_only(torch.Tensor, bare, inputs[0]))
    noise = _noise(exact) if {"spread", "overlapping"} & {*forms[0]} else 0.0
    oracle = oracle_of(sides[0])
    with torch.set_grad_enabled(grad):
        made = any("_refold_made" in vars(c) for c in type(fast).__mro__)
        taken = made and introspect.fallback_reason(sides[1], inputs[1]) is None
        state = torch.get_rng_state()
        (eager, raised), (got, ours) = (_outcome(call, state) for call in calls)
        if type(raised) is not type(ours):
            raise Differ(f"{words}: eager raises {raised!r}, the fast one {ours!r}") from ours
        if raised is not None:
            return taken
        torch.set_rng_state(state)
        truth = oracle(*exact)
    try:
        for v, before in zip(
            tensors(inputs[1]), tensors(formed(plain, seed, marks)[0]), strict=True
        ):
            assert torch.equal(bare(v).nan_to_num(), bare(before).nan_to_num()), "it was written"
        # images in rows become what weights are whose channels lie last, which is not followed
        check_form(got, eager, not any("channels_last" in form for form in told))
        for g, e, t in zip(tensors(got), tensors(eager), tensors(truth), strict=True):
            for mark in (type, torch.is_inference, lambda v: v.requires_grad):
                assert mark(g) == mark(e), f"{mark(g)}, eager {mark(e)}"
            check_values(bare(g), bare(e), bare(t), noise)
        theirs, own = _shared(calls[0], eager), _shared(calls[1], got)
        assert own == theirs, f"memory is shared otherwise: {own}, eager {theirs}"
        for a, b in zip(sides[1].buffers(), sides[0].buffers(), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6, equal_nan=True)
        if grad:
            _check_gradients(calls, (eager, got))
    except AssertionError as error:
        raise Differ(f"{words}: {error}") from error
    return taken


def bare(x: torch.Tensor) -> torch.Tensor:
    """A copy without marks."""
    return x.detach().as_subclass(torch.Tensor).resolve_neg().clone()


def _noise(exact: Any) -> float:
    """What rounding leaves where numbers that are all alike cancel."""
    found = (v.abs().max().item() for v in tensors(exact) if v.is_floating_point() and v.numel())
    return 1e-7 * max(found, default=0.0)


def _outcome(call: Call, state: torch.Tensor) -> tuple[Any, Exception | None]:
    module, inputs = call
    torch.set_rng_state(state)
    try:
        return module(*inputs), None
    except Exception as error:
        return None, error


def _shared(call: Call, result: Any) -> list[int]:
    """Which of the tensors around a call lie in one memory."""
    known: dict[int, int] = {}
    module, inputs = call
    given = [*tensors(inputs), *module.parameters(), *module.buffers(), *tensors(result)]
    there = [t.untyped_storage().data_ptr() for t in given if t.numel()]
    return [known.setdefault(address, len(known)) for address in there]


def _check_gradients(calls: list[Call], results: tuple[Any, Any]) -> None:
    found = []
    for (module, inputs), result in zip(calls, results, strict=True):
        made = [v for v in tensors(result) if v.requires_grad]
        if not made:
            return
        try:
            torch.stack([v.sum() for v in made]).sum().backward()
        except RuntimeError as error:  # aminmax has no derivative in PyTorch 2.11
            found.append([str(error)])
            continue
        leaves = [*module.parameters(), *(v for v in tensors(inputs) if v.is_leaf)]
        found.append([v.grad for v in leaves])
    for a, b in zip(*found, strict=True):
        assert type(a) is type(b), "a gradient is missing"
        if isinstance(a, str):
            assert a == b
        elif a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
