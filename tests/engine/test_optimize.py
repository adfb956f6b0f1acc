"""optimize() on whole graphs: same values, never dearer, and what the known systems become."""

import gc
from contextlib import nullcontext

import pytest
import torch

from refold.devices import DeviceModel
from refold.engine import Optimized, extract, optimize
from refold.ir import Graph, Node
from refold.ir.evaluate import evaluate
from refold.ir.graph import render
from refold.ir.shapes import pad
from refold.planner import PlanPricer, floor, plan_price
from refold.rules.term import softmax

from .graphs import EMPTY, MASKED, ROWS, N, data, graph, lin, norm, x

H200 = PlanPricer(DeviceModel.of("cuda:sm_90"))
ALL = {**ROWS, **EMPTY}


def ops(g: Graph) -> list[str]:
    """The ops that a call computes: what parameters alone decide is folded."""
    from refold.ir.graph import is_parametric

    return [n.op for n in g.nodes() if n.inputs and not is_parametric(n)]


def check_equal(before: Graph, after: Graph) -> None:
    for sizes in ({"n": 2, "t": 2}, {"n": 7, "t": 4}):
        values = data(before, sizes)
        old = evaluate(before, values, sizes, torch.float64)
        new = evaluate(after, values, sizes, torch.float64)
        for a, b in zip(old, new, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("device", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_same_values_and_never_dearer(name: str, strict: bool, device: str) -> None:
    g = graph(ALL[name]())
    pricer = PlanPricer(DeviceModel.of(device))
    done = optimize(g, pricer, strict=strict)
    check_equal(g, done.graph)
    assert done.price_after <= done.price_before
    plan = pricer.plan(done.graph, done.originals)
    assert done.price_after == plan_price(plan, pricer.device).seconds
    assert done.price_after >= floor(done.graph, pricer.device)
    assert not (strict and done.label == "finite")
    if done.graph != g:
        assert done.steps


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_called_independent(name: str) -> None:
    assert optimize(graph(ROWS[name]()), H200).independent_outputs == ()


@pytest.mark.parametrize("name", EMPTY)
def test_independent_outputs_are_reported(name: str) -> None:
    done = optimize(graph(EMPTY[name]()), H200)
    assert done.independent_outputs == (0,)
    assert done.label == "finite"
    assert "input" not in {n.op for n in done.graph.nodes()}
    assert optimize(graph(EMPTY[name]()), H200, strict=True).independent_outputs == ()


@pytest.mark.parametrize("name", MASKED)
def test_NaN_of_masked_rows_is_lost_only_if_that_is_asked_for(name: str) -> None:
    g = graph(MASKED[name]())
    assert optimize(g, H200).independent_outputs == ()
    assert optimize(g, H200, unsafe=True).independent_outputs == (0,)


def test_a_banned_rule_is_not_used() -> None:
    g = graph(ROWS["s0"]())
    assert "sum-through-linear" in {s.rule for s in optimize(g, H200).steps}
    done = optimize(g, H200, banned=[("sum-through-linear", None)])
    assert "sum-through-linear" not in {s.rule for s in done.steps}


def test_an_output_that_would_forget_one_input_keeps_it() -> None:
    from .graphs import x

    y = x(N, 16, name="y")
    g = graph((x(N, 16) - x(N, 16)) + y)
    done = optimize(g, H200)
    values = data(g, {"n": 3})
    values["x"][0, 0, 0, 0] = float("nan")
    assert evaluate(done.graph, values, {"n": 3})[0].isnan().any()


@pytest.mark.parametrize("name", ROWS)
def test_NaN_inputs_give_NaN(name: str) -> None:
    g = graph(ROWS[name]())
    done = optimize(g, H200)
    sizes = {"n": 3, "t": 2}
    values = data(g, sizes)
    for key, value in values.items():
        if key in ("x", "y", "q", "k"):
            value.view(-1)[1] = float("nan")
    old = evaluate(g, values, sizes, torch.float64)
    new = evaluate(done.graph, values, sizes, torch.float64)
    for a, b in zip(old, new, strict=True):
        assert b.isnan().any() == a.isnan().any()


def opt(name: str) -> Optimized:
    return optimize(graph(ROWS[name]()), H200)


def test_s0_is_one_matvec() -> None:
    assert ops(opt("s0").graph) == ["linear", "add"]


def test_s1_is_a_pooled_product() -> None:
    done = opt("s1")
    assert ops(done.graph) == ["linear", "add", "gelu", "max", "mul"]
    product = next(n for n in done.graph.nodes() if n.op == "linear")
    assert product.shape[-1] == 4


def test_s2_in_eval_mode_is_one_scale_and_one_shift() -> None:
    assert ops(opt("s2").graph) in (["linear", "mul", "add"], ["linear", "add"])


def test_s2_in_train_mode_takes_statistics_of_the_bare_product() -> None:
    g = opt("s2-train").graph
    for node in g.nodes():
        if node.op in ("mean", "var"):
            assert node.inputs[0].op == "linear"
    full = [n for n in g.nodes() if n.inputs and n.shape == pad((N, 12))]
    assert len(full) == 4  # the product, centred, scaled, shifted


def test_s3_in_train_mode_ignores_the_bias() -> None:
    text = render(opt("s3-train").graph)
    assert "f.b" not in text


def test_s4_is_left_alone() -> None:
    assert opt("s4").graph == graph(ROWS["s4"]())


@pytest.mark.parametrize("name", ["mish", "mish-by-logarithm"])
def test_a_mish_by_hand_is_one(name: str) -> None:
    assert ops(opt(name).graph) == ["linear", "add", "mish"]


def test_linear_maps_compose_only_where_that_pays() -> None:
    assert ops(opt("composed").graph) == ["linear"]
    assert ops(opt("thin-product-weight").graph).count("linear") in (1, 2)
    assert ops(opt("linear-attention").graph).count("linear") == 2


def test_a_sum_over_places_that_were_made_one_axis_needs_no_convolution() -> None:
    assert "conv" not in ops(opt("image-made-one-axis").graph)
    assert "conv" not in ops(opt("tokens-of-image").graph)


def test_rows_of_a_small_table_are_computed_once() -> None:
    assert ops(opt("letters").graph) == ["embedding"]
    assert ops(opt("words").graph) == ["embedding", "linear", "add"]


def test_running_sums_are_of_the_fewer_features() -> None:
    for name, width in (("running-sums", 8), ("map-of-running-sums", 8)):
        sums = [n for n in opt(name).graph.nodes() if n.op == "cumsum" and n.shape[-2] != 1]
        assert [n.shape[-1] for n in sums if n.shape[-1] != 1] == [width]


def test_only_rows_that_are_looked_up_are_computed() -> None:
    assert ops(opt("few-rows").graph) == ["embedding", "linear", "add", "relu"]


def test_a_product_that_is_needed_anyway_is_not_computed_twice() -> None:
    assert ops(opt("sum-and-value").graph).count("linear") == 1


def test_heads_are_merged_only_where_reading_the_input_costs_more_than_cutting() -> None:
    """On a GPU a product of few features is one reading of its input; of more it fills tiles of 128
    features, or leaves them empty."""
    cpu = PlanPricer(DeviceModel.of("cpu"))
    non_unit_axes = graph(ROWS["heads-of-a-wide-input"]())
    assert ops(opt("two-heads").graph).count("linear") == 2
    assert ops(optimize(non_unit_axes, H200).graph).count("linear") == 2
    assert ops(optimize(non_unit_axes, cpu).graph).count("linear") == 1


def test_a_product_with_a_diagonal_is_a_scale() -> None:
    assert ops(opt("diagonal").graph) == ["mul"]


def test_a_shift_of_an_input_stays_where_it_is_and_its_scale_does_not() -> None:
    """Where a mean nearly cancels an input the difference is exact: only that is multiplied."""
    done = ops(opt("bn-before").graph)
    assert done[-2:] == ["linear", "add"] and done[0] in ("sub", "add")
    assert ops(opt("standardised").graph) == ["sub", "linear", "add"]
    # behind a product a shift is as good before the next one as after it
    assert "add" not in ops(opt("bn-of-product").graph)[:-1]


@pytest.mark.parametrize("name", ["s1", "s2-train", "residual", "attention"])
def test_same_graph_same_answer(name: str) -> None:
    first, second = opt(name), opt(name)
    assert first.graph == second.graph
    assert first.steps == second.steps


def test_steps_say_what_and_why() -> None:
    steps = {s.rule: s for s in opt("s1").steps}
    pool = steps["pool-through-linear"]
    assert pool.label == "reals"
    assert pool.before.startswith("avg_pool(linear(x, f.w)")
    assert pool.why.endswith(".")
    assert str(pool).startswith("pool-through-linear (reals): avg_pool(")


def test_a_swap_touches_only_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that enter a choice grow as a chain does, not as its square."""
    entered: list[int] = []
    enter = extract._Swaps._enter

    def counted(self: extract._Swaps, node: Node) -> list[int]:
        entered[-1] += 1
        return enter(self, node)

    monkeypatch.setattr(extract._Swaps, "_enter", counted)
    for length in (4, 8):
        entered.append(0)
        value = x(N, 16)
        for i in range(length):
            value = softmax(norm(lin(value, f"f{i}", 16, 16), (-1,), f"n{i}", 16) * 2.0, -1)
        optimize(graph(value), H200)
    assert 0 < entered[1] < 3 * entered[0]


class Asked(PlanPricer):
    """Notes whether rings of garbage are looked for while it is asked."""

    def __init__(self, device: DeviceModel, fails: bool) -> None:
        super().__init__(device)
        self.fails, self.seen = fails, set[bool]()

    def price(self, g, originals):
        self.seen.add(gc.isenabled())
        if self.fails:
            raise ArithmeticError
        return super().price(g, originals)


@pytest.mark.parametrize("fails", (False, True))
@pytest.mark.parametrize("enabled", (False, True))
def test_garbage_is_not_collected_meanwhile_and_is_behind_as_before(enabled, fails):
    pricer = Asked(DeviceModel.of("cpu"), fails)
    try:
        gc.enable() if enabled else gc.disable()
        with pytest.raises(ArithmeticError) if fails else nullcontext():
            optimize(graph(x(N, 8) * 2), pricer)
        behind = gc.isenabled()
    finally:
        gc.enable()
    assert pricer.seen == {False}
    assert behind == enabled
