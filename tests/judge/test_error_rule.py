"""The rule of errors: beside eager, by element, row and structure; and what is drawn for it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from refold.judge import Speed, draws
from refold.judge.clock import stats
from refold.judge.rule import cutoff, luck
from refold.judge.rule.compare import acquitted, compare, resolve, tensors
from refold.judge.rule.rows import Comparison, _row_stats
from refold.judge.truth.replay import Widen


def test_error_rule_accepts_other_orders_and_rejects_narrow_operands() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(8, 2048), torch.randn(64, 2048)
    eager, exact = x @ w.t(), x.double() @ w.double().t()
    flipped = x.flip(1) @ w.flip(1).t()
    assert tensors("", "y", flipped, eager, exact).agrees
    narrow = x.half().float() @ w.half().float().t()
    found = tensors("", "y", narrow, eager, exact)
    assert not found.agrees
    assert found.errors is not None and found.errors.ratio > 100
    assert found.worst is not None and len(found.worst.index) == 2


def test_error_rule_sees_one_wrong_element_in_a_small_row() -> None:
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[3] *= 1e-4
    eager = exact.float()
    got = eager.clone()
    got[3, 5] += 1e-6
    found = tensors("", "y", got, eager, exact)
    assert found.worst is not None and found.worst.index == (3, 5)


def test_masks_and_exact_values() -> None:
    inf, nan = float("inf"), float("nan")
    eager = torch.tensor([1.0, inf, -inf, nan])
    assert tensors("", "y", eager.clone(), eager, eager.double()).agrees
    for i, value in ((0, nan), (1, -inf), (2, 0.0), (3, 1.0)):
        got = eager.clone()
        got[i] = value
        assert not tensors("", "y", got, eager, eager.double()).agrees
        finite = tensors("", "y", got, eager, eager.double(), finite_only=True).agrees
        assert finite == (i != 0)
    ints = torch.arange(5)
    assert tensors("", "i", ints, ints, ints).agrees
    assert not tensors("", "i", ints + 1, ints, ints).agrees


@pytest.mark.parametrize(
    ("got", "eager", "exact", "passes"),
    [
        (-0.9, -math.inf, math.nan, True),  # 0/0 as rounding has it
        (math.inf, -0.9, math.nan, True),
        (1.0, math.nan, math.nan, False),
        (math.inf, math.nan, 1.0, False),
        (math.nan, 1.0, math.inf, False),
        (math.nan, 1.0, 1.0, False),
    ],
)
def test_what_rounding_alone_makes_is_not_held_to_anything(got, eager, exact, passes) -> None:
    rows = [torch.full((2, 40), v) for v in (1.0, 1.0, 1.0)]
    for row, value in zip(rows, (got, eager, exact), strict=True):
        row[1, 3] = value
    mine, theirs, truth = rows
    assert tensors("", "y", mine, theirs, truth.double()).agrees == passes


def test_the_rounding_of_a_zero_may_be_zero() -> None:
    tail = torch.tensor([[1.0, 1e-30] * 20])
    zero = torch.tensor([[1.0, 0.0] * 20])
    assert not tensors("", "y", zero, tail, tail.double()).agrees
    mine, truth = zero.double(), tail.double()
    other = torch.tensor([[1.0, -3e-30] * 20], dtype=torch.float64)
    assert tensors("", "y", mine, truth, truth, also=[other]).agrees
    assert not tensors("", "y", mine, truth, truth, also=[truth * (1 + 1e-15)]).agrees


def test_nan_where_eager_has_it_needs_no_truth() -> None:
    """By eager alone: equal kinds, and near numbers beside them; nothing is known of others."""
    eager = torch.tensor([[1.0, float("nan"), float("inf"), -2.0]])
    near, far, other = eager.clone(), eager.clone(), eager.clone()
    near[0, 0] = 1.0 + 2.0**-23
    far[0, 0] = 1.1
    other[0, 2] = float("-inf")
    assert acquitted(eager.clone(), eager) and acquitted(near, eager)
    assert not acquitted(far, eager) and not acquitted(other, eager)


def test_structure_must_match() -> None:
    x = torch.ones(2)
    assert all(r.agrees for r in compare("", (x, [x]), (x, [x]), (x.double(), [x.double()])))
    for got in (x, (x,), [x, [x]], (x, [x.double()]), (x, [torch.ones(3)])):
        results = compare("", got, (x, [x]), (x.double(), [x.double()]))
        assert any(r.structural for r in results)


def test_intervals_do_not_guess() -> None:
    assert stats.decide(1.1, 1.2) is Speed.FASTER
    assert stats.decide(0.8, 0.9) is Speed.SLOWER
    assert stats.decide(0.97, 1.03) is Speed.SAME
    assert stats.decide(0.9, 1.3) is Speed.AMBIGUOUS
    low, high = stats.bootstrap([1.0, 1.1, 0.9, 1.05, 0.95] * 4, seed=0)
    assert 0.9 <= low <= 1.0 <= high <= 1.1


def test_perturbed_state_moves_everything() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    after = draws.perturbed(before, 1)
    assert all(not torch.equal(before[k], after[k]) for k in before)
    assert bool((after["1.running_var"] > 0).all())


def test_perturbed_state_keeps_what_is_special() -> None:
    inf, nan = float("inf"), float("nan")
    before = {"mixed": torch.tensor([1.0, inf, -2.0, nan, -inf]), "all": torch.tensor([inf, nan])}
    after = draws.perturbed(before, 1)
    assert torch.equal(after["all"][:1], before["all"][:1]) and after["all"][1].isnan()
    assert after["mixed"].tolist()[1::3] == [inf, -inf] and after["mixed"][3].isnan()
    moved = after["mixed"][[0, 2]] - before["mixed"][[0, 2]]
    assert bool((moved != 0).all()) and bool((moved.abs() < 3).all())
    wide = draws.perturbed({"w": torch.randn(64, dtype=torch.float64)}, 1)["w"]
    assert wide.dtype == torch.float64 and not torch.equal(wide, wide.float().double())


def test_row_statistics_with_and_without_special_values() -> None:
    torch.manual_seed(0)
    exact = torch.randn(40, 300, dtype=torch.float64) * torch.logspace(-9, 9, 40).unsqueeze(1)
    got, eager = ((exact * (1 + 1e-6 * torch.randn_like(exact))).float() for _ in range(2))
    *whole, bins = _row_stats(got, eager, exact)
    relative = (got.double() - exact).abs() / exact.abs().amax(dim=1, keepdim=True)
    level = ((relative.clamp(min=2.0**-40).log2() + 40) / 2).floor().long()
    assert torch.equal(bins[0], torch.bincount(level.reshape(-1), minlength=24))
    got[7, 5], eager[9, 6] = torch.nan, torch.inf  # a row each is compared by masks
    *masked, _ = _row_stats(got, eager, exact)
    assert masked[5].tolist() == [300.0] * 7 + [299.0] + [300.0] * 32
    rest = [r for r in range(40) if r not in (7, 9)]
    assert all(torch.equal(a[rest], b[rest]) for a, b in zip(whole, masked, strict=True))


def test_lattice_draws_odd_integers_of_12_and_13_bits() -> None:
    (drawn,), state = draws.lattice([torch.empty(100, 1000)], {"w": torch.empty(1000)}, 1)
    assert sorted(set(state["w"].tolist())) == [-1.0, 0.0, 1.0]
    assert bool((drawn % 2 == 1).all()) and bool((drawn < 0).any()) and bool((drawn > 0).any())
    assert float(drawn.abs().min()) >= 2049 and float(drawn.abs().max()) <= 8191


def test_zero_is_no_loss_where_eager_knows_the_value_by_chance_alone() -> None:
    torch.manual_seed(0)
    exact = 1e-6 * torch.randn(64, 1024, dtype=torch.float64)
    noise = 4e-9 * torch.rand(64, 1024, dtype=torch.float64) - 2e-9
    exact[0, 0], noise[0, 0] = 1e-9, 0.0  # here eager is right by chance
    eager, other = (exact + noise).float(), ((exact - noise) / 4e-9).round().mul(4e-9).float()
    assert other[0, 0] == 0 and int((other == 0).sum()) > 50
    assert tensors("", "y", other, eager, exact).agrees
    tail = torch.cat([exact, 1e-30 * torch.rand(64, 8, dtype=torch.float64)], dim=1)
    gone = torch.cat([other, torch.zeros(64, 8)], dim=1)
    known = torch.cat([eager, tail[:, 1024:].float()], dim=1)
    found = tensors("", "y", gone, known, tail)
    assert not found.agrees and "next to it" in found.reason


def test_ties_of_complex_numbers_are_of_their_parts() -> None:
    """What is compared are real and imaginary parts: more elements than there are numbers."""
    exact = torch.zeros(3, 4, dtype=torch.complex128)
    jumped, got = exact.clone(), torch.zeros(3, 4, dtype=torch.complex64)
    jumped[2, 3] = 1j
    got[2, 3], got[0, 0] = 1j, 1.0
    wrong = torch.view_as_real(got).abs() > 0.5
    mended = resolve(got, exact, wrong, [jumped])
    assert mended[2, 3] == 0 and mended[0, 0] == 1  # a tie, and an error


def test_a_row_of_zeros_is_held_to_what_eager_errs_by_beside_a_clamp() -> None:
    """Of a relu, whole rows of which are zero: who errs as much as eager crosses it elsewhere."""
    torch.manual_seed(0)
    whole = torch.randn(20000, 64, dtype=torch.float64) - 2.5
    eager, got = ((whole + 1e-2 * torch.randn_like(whole)).relu().float() for _ in range(2))
    exact = whole.relu()
    empty = (exact == 0.0).all(dim=1)
    assert bool((got[empty] != 0.0).any())
    assert tensors("", "", got, eager, exact).agrees
    leaking = torch.where(empty[:, None], 0.2, got)
    assert not tensors("", "", leaking, eager, exact).agrees
    # where eager never errs there, zero is zero
    sure = torch.where(whole.abs() < 0.01, -1.0, whole).relu()
    assert not tensors("", "", got, sure.float(), sure).agrees


def test_where_the_function_jumps_errors_are_held_to_what_moved_inputs_do() -> None:
    """Steps of large values, spread over their row by its mean: eager may have none on the other
    side and an honest order two. Who has far more, or has them elsewhere, is wrong."""
    torch.manual_seed(0)
    before = torch.randn(16, 400, dtype=torch.float64)

    def after(noise: float, shift: float = 0.0) -> torch.Tensor:
        y = torch.sign(before + noise * torch.randn_like(before) + shift)
        return y - y.mean(dim=1, keepdim=True)

    exact, usual = after(0.0), luck.Usual({"y": 2.0**-10 / torch.finfo(torch.float32).eps})
    eager, moved = exact.float(), [after(8 * 2.0**-10) for _ in range(16)]

    def found(got: torch.Tensor) -> bool:
        failed = replace(tensors("", "y", got, eager, exact), name="y")
        if failed.agrees:
            return True

        def rule(mended: torch.Tensor) -> Comparison:
            return tensors("", "y", mended, eager, exact)

        return luck.again(failed, got, eager, exact, moved, usual, rule).agrees

    assert all(found(after(2.0**-10).float()) for _ in range(20))
    assert not found(after(2.0**-4).float())
    assert not found(after(0.0, 0.05).float())
    other = exact.clone()
    other[:8, :3] *= -1  # three of each row, on the other side of nothing
    assert not found(other.float())
    # eager's own are taken out, and no others
    theirs = after(2.0**-10).float()
    theirs[0, 5] = 0.25
    settled = luck.settled(theirs, exact, moved, usual)
    assert int(((settled - exact).abs() > 1e-6).sum()) == 1 and settled[0, 5] == 0.25
    smooth = [exact * (1 + 8 * 2.0**-10 * torch.randn_like(exact)) for _ in range(16)]
    assert luck.settled(theirs, exact, smooth, usual) is theirs


def test_a_copy_of_16_bits_is_a_copy_in_float64() -> None:
    """Else who writes to an input before the backward changes what float64 saved, not eager."""
    x = torch.randn(3, dtype=torch.float64)
    with Widen():
        same = [x.float(), x.to(torch.float32), x.double()]
        others = [x.half(), x.to(torch.bfloat16), x.to(dtype=torch.float16), x.bfloat16()]
    assert all(t.dtype == torch.float64 for t in (*same, *others))
    assert [t.data_ptr() == x.data_ptr() for t in (*same, *others)] == [True] * 3 + [False] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_last_bits_that_are_cut_off_are_seen(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    exact = torch.randn(40, 30, dtype=torch.float64)
    eager = exact.to(dtype)
    unit = exact / exact.frexp().mantissa / 2 * torch.finfo(dtype).eps
    cut = (torch.trunc(exact / unit) * unit).to(dtype)
    assert not acquitted(cut, eager)
    found = tensors("", "y", cut, eager, exact)
    assert not found.agrees and "cut off" in found.reason
    # the nearest of a value that is half a unit smaller, of one in three alone; eager's own way
    twice = (exact.float().to(dtype) * 1.001).to(dtype)
    some = torch.where(torch.rand(exact.shape) < 1 / 3, cut, eager)
    for honest, theirs in ((eager, cut), (twice, eager), (some, eager), (cut, cut)):
        assert not cutoff.found(honest, theirs, exact)
    assert not cutoff.found(cut[:2], eager[:2], exact[:2])  # too few to say so
