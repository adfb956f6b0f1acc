"""Do a fast module and its original agree, by the judge's rule, in every state they can be in?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from refold import introspect

Make = Callable[[], list[Any]]


def tensors(tree: Any) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


def double(tree: Any) -> Any:
    """Every floating tensor of a tree in float64."""
    return pytree.tree_map(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, tree
    )


def oracle_of(module: nn.Module) -> nn.Module:
    """A copy in float64, tensors that are plain attributes included."""
    oracle = copy.deepcopy(module).double()
    for m in oracle.modules():
        for name, value in list(vars(m).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(m, name, value.double())
    return oracle


@dataclass(frozen=True)
class Run:
    """Tensors of one call: its results, then the buffers after it."""

    result: Any
    values: list[torch.Tensor]

    @staticmethod
    def of(module: nn.Module, inputs: list[Any]) -> Run:
        with torch.no_grad():
            result = module(*inputs)
        return Run(result, [*tensors(result), *(b.clone() for b in module.buffers())])


def check_close(got: Any, eager: Any, truth: Any) -> None:
    """The rule of the judge for results: structure, shapes, dtypes and strides, then the values."""
    check_form(got, eager)
    for g, e, t in zip(tensors(got), tensors(eager), tensors(truth), strict=True):
        check_values(g, e, t)


def check_form(got: Any, eager: Any, layout: bool = True) -> None:
    """layout: strides count."""
    assert pytree.tree_structure(got) == pytree.tree_structure(eager)
    for g, e in zip(tensors(got), tensors(eager), strict=True):
        own, theirs = ((v.shape, v.dtype, strides(v) if layout else None) for v in (g, e))
        assert own == theirs, f"{own}, eager {theirs}"


def strides(v: torch.Tensor) -> list[int] | None:
    """Those that mean something."""
    return [st for st, s in zip(v.stride(), v.shape, strict=True) if s > 1] if v.numel() else None


def check_values(g: torch.Tensor, e: torch.Tensor, t: torch.Tensor, error: float = 0.0) -> None:
    """Error against float64 within a multiple of eager's own, `error` being one that eager is
    known to make. NaN and infinities must be where eager or float64 has them."""
    if not g.is_floating_point():
        assert torch.equal(g, e) or torch.equal(g, t.to(g.dtype)), "integers differ"
        return
    known = e.isfinite() & t.isfinite()
    strange = ~known & ~e.isnan() & ~t.isnan()
    assert g[e.isnan() & t.isnan()].isnan().all(), "NaN is gone"
    assert (g[strange].double().sign() == t[strange].sign()).all(), "an infinity differs"
    assert g[known].isfinite().all(), "NaN or an infinity in the place of a number"
    scale = t[known].abs().max().item() if known.any() else 0.0
    # of float64 there is no wider truth: eager's error is not known
    factor, floor = {torch.float32: (16, 4e-7), torch.float64: (16, 1.5e-14)}.get(
        g.dtype, (3, torch.finfo(g.dtype).eps)
    )
    allowed = factor * max(error, error_of(e, t)) + floor * scale + 1e-38
    worst = error_of(g[known], t[known])
    assert worst <= allowed, f"error {worst:.3g}, allowed {allowed:.3g}, scale {scale:.3g}"


def error_of(v: torch.Tensor, t: torch.Tensor) -> float:
    known = v.isfinite() & t.isfinite()
    error = (v.double() - t)[known].abs()
    return error.max().item() if error.numel() else 0.0


def check_call(
    fast: nn.Module, module: nn.Module, make: Make, bits: bool = False, layout: bool = True
) -> None:
    """One call of both in their present mode from the same random state; buffers follow too.

    Where eager raises, the fast module must raise. bits: the results must be identical.
    """
    inputs = make()
    reference, oracle = copy.deepcopy(module), oracle_of(module)
    state = torch.get_rng_state()
    try:
        eager = Run.of(reference, copy.deepcopy(inputs))
    except (RuntimeError, ValueError, IndexError) as error:
        torch.set_rng_state(state)
        module.load_state_dict(reference.state_dict())
        try:
            Run.of(fast, inputs)
        except type(error):
            return
        raise AssertionError(f"eager raises {error!r}, the fast module does not") from error
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    truth = Run.of(oracle, double(inputs))
    torch.set_rng_state(state)
    kept = copy.deepcopy(inputs)
    got = Run.of(fast, inputs)
    assert torch.equal(torch.get_rng_state(), after), "another number of random draws"
    for a, b in zip(tensors(inputs), tensors(kept), strict=True):
        assert torch.equal(a, b), "an input was written"
    check_form(got.result, eager.result, layout)
    for i, (g, e, t) in enumerate(zip(got.values, eager.values, truth.values, strict=True)):
        if bits and i < len(tensors(eager.result)):
            assert torch.equal(g.nan_to_num(), e.nan_to_num()), "promised bits differ"
        try:
            check_values(g, e, t)
        except AssertionError:
            # eager may have been lucky this once, with few elements above all
            check_values(g, e, t, _usual_error(module, make, i))
    # what is left of the noise must not add up over calls
    module.load_state_dict(reference.state_dict())
    with torch.no_grad():
        for own, theirs in zip(fast.buffers(), reference.buffers(), strict=True):
            own.copy_(theirs)


def check_modes(
    fast: nn.Module, module: nn.Module, move: Callable[[Any], Any] = lambda tree: tree
) -> None:
    """Both modes on two draws of the module's own inputs; what it says of its state follows.

    move: takes inputs to where the module is.
    """
    for training in (True, False):
        for seed in (1, 2):
            torch.manual_seed(seed)
            inputs = move(module.inputs())
            reference, oracle, twin = copy.deepcopy(module), oracle_of(module), copy.deepcopy(fast)
            for m in (reference, oracle, twin):
                m.train(training)
            with torch.no_grad():
                assert introspect.fallback_reason(twin, inputs) is None
                check_close(twin(*inputs), reference(*inputs), oracle(*double(inputs)))
                if seed == 1:
                    check_conditioning(*map(copy.deepcopy, (fast, module)), inputs, training)
            for k, v in reference.state_dict().items():
                torch.testing.assert_close(twin.state_dict()[k], v, rtol=2e-5, atol=1e-6)


# inputs far from zero (in deviations), and of other sizes
CONDITIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda v: v + 1e3 * (v.std() if v.numel() > 1 else 1.0),
    lambda v: v * 1e15,
    lambda v: v * 1e-15,
)


def _scaled(inputs: Any, by: float) -> Any:
    return pytree.tree_map(
        lambda v: v * by if isinstance(v, torch.Tensor) and v.is_floating_point() else v, inputs
    )


def check_conditioning(
    fast: nn.Module, module: nn.Module, inputs: list[Any], training: bool
) -> None:
    """Moved and scaled inputs: no digits are lost that eager keeps, and no NaN by its position.

    Errors are compared as root mean squares of each result: of sums that nearly cancel, single
    elements are a matter of luck.
    """
    for change in CONDITIONS:
        moved = pytree.tree_map(
            lambda v, change=change: (
                change(v) if isinstance(v, torch.Tensor) and v.is_floating_point() else v
            ),
            inputs,
        )
        oracle = oracle_of(module).train(training)
        try:
            eager = tensors(copy.deepcopy(module).train(training)(*moved))
            truth = tensors(oracle(*double(moved)))
        except (RuntimeError, ValueError, IndexError):
            continue  # values that the model refuses
        got = tensors(copy.deepcopy(fast).train(training)(*moved))
        # a NaN of 0 / 0 may hang on how a mean of equal numbers is rounded: not one that stays NaN
        # whatever the last digits are
        again = [
            tensors(copy.deepcopy(module).train(training)(*_scaled(moved, 1 + k * 2.0**-20)))
            for k in (1, 3, 5, 7)
        ]
        for i, (g, e, t) in enumerate(zip(got, eager, truth, strict=True)):
            if not g.is_floating_point():
                continue
            known = e.isfinite() & t.isfinite()
            assert g[known].isfinite().all(), "NaN or an infinity in the place of a number"
            lost = e.isnan() & t.isnan()
            for other in again:
                lost &= other[i].isnan()
            assert g[lost].isnan().all(), "NaN is gone"
            scale, theirs, own = (
                (v.double()[known] / (t[known].abs().max() + 1e-300)).square().mean().sqrt().item()
                if known.any()
                else 0.0
                for v in (t, e - t, g - t)
            )
            allowed = 16 * theirs + 8 * torch.finfo(g.dtype).eps * scale + 1e-38
            assert own <= allowed, f"RMS error {own:.3g}, allowed {allowed:.3g}, eager {theirs:.3g}"


def _usual_error(module: nn.Module, make: Make, i: int) -> float:
    """The largest error that eager makes in its i-th value over a few draws."""
    worst = 0.0
    for _ in range(8):
        inputs = make()
        state = torch.get_rng_state()
        eager = Run.of(copy.deepcopy(module), inputs)
        torch.set_rng_state(state)
        truth = Run.of(oracle_of(module), double(inputs))
        worst = max(worst, error_of(eager.values[i], truth.values[i]))
    return worst


def check_life(
    fast: nn.Module,
    module: nn.Module,
    draw: Callable[[int], list[Any]],
    batches: tuple[int, ...],
    bits: bool = False,
) -> None:
    """Both modes, twice in a row, other batches and layouts, updated, reloaded and copied.

    fast and module must not share parameters: each gets the same updates.
    """
    first = batches[0]
    for training in (True, False):
        fast.train(training), module.train(training)
        for seed in (2, 3):
            torch.manual_seed(seed)
            check_call(fast, module, lambda: draw(first), bits)
        for batch in batches[1:]:
            check_call(fast, module, lambda n=batch: draw(n), bits)
        check_call(fast, module, lambda: [strided(v) for v in draw(first)], bits, False)
        with torch.no_grad():
            for a, b in zip(fast.parameters(), module.parameters(), strict=True):
                step = torch.randn_like(a) * 0.1
                a.add_(step), b.add_(step)
        check_call(fast, module, lambda: draw(first), bits)
        other = {k: v * 0.75 for k, v in module.state_dict().items()}
        fast.load_state_dict(other), module.load_state_dict(other)
        check_call(fast, module, lambda: draw(first), bits)
        fast = copy.deepcopy(fast)
        check_call(fast, module, lambda: draw(first), bits)


def strided(v: Any) -> Any:
    """The same values, not contiguous."""
    if not isinstance(v, torch.Tensor) or v.dim() == 0:
        return v
    wide = torch.stack([v, torch.zeros_like(v)], dim=-1)
    return wide.select(-1, 0)
