"""What is ours is measured against float64 before it is trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from refold.backend import choose, graphs
from refold.backend.accurate import Measured, Unmeasured, measured
from refold.backend.report import collected

from .by_plan import by_plans
from .steps import all_ours, compiled, parts_alone

Call = Callable[..., Any]


def graph(function: Call, *args: torch.Tensor) -> torch.fx.GraphModule:
    """A function as AOTAutograd gives it, with what is known of each value."""
    made = make_fx(function)(*args)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        given = iter([mode.from_tensor(a) for a in args])
        for node in made.graph.nodes:
            if node.op == "placeholder":
                node.meta["val"] = next(given)
    return made


def boxed(function: Call) -> Call:
    def call(args: list[Any]) -> list[Any]:
        made = function(*args)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    return call


def error(wanted: Call, ours: Call, *args: torch.Tensor, **given: Any) -> Measured:
    return measured(graph(wanted, *args), boxed(ours), **given)


def test_eager_itself_is_as_accurate_as_eager() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w)

    found = error(layer, layer, torch.randn(8, 32), torch.randn(32, 16), moved=True)
    assert found.good and found.ratio == pytest.approx(1.0)
    assert found.where.startswith("result 0, ")


@pytest.mark.parametrize(
    "ours",
    [
        lambda x: (x * (1 + 1e-5)).sum(1),
        lambda x: x.half().float().sum(1),
        lambda x: x.sum(1).half().float(),
        lambda x: torch.where(x.sum(1) > 0, x.sum(1), torch.inf),
        lambda x: x.sum(1, keepdim=True),
        lambda x: x.double().sum(1),
    ],
    ids=["scaled", "rounded", "rounded_after", "infinite", "another_shape", "another_dtype"],
)
def test_what_is_less_accurate_is_found(ours: Call) -> None:
    assert not error(lambda x: x.sum(1), ours, torch.randn(64, 32)).good


def test_terms_that_cancel_are_found() -> None:
    def by_squares(x: torch.Tensor) -> torch.Tensor:
        return (x * x).mean(1) - x.mean(1) ** 2

    assert not error(lambda x: x.var(1, correction=0), by_squares, torch.randn(32, 256)).good


@pytest.mark.parametrize(
    "times, good", [(3.0, True), (5.0, False)], ids=["of_rounding", "of_more_than_rounding"]
)
def test_what_is_nothing_but_rounding_has_no_digits_to_lose(times: float, good: bool) -> None:
    """As the gradient of a bias that all scores of a softmax share. What has digits beside it keeps
    its bar."""

    def shared(w: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        part = w.softmax(-1) * g
        scores = part - w.softmax(-1) * part.sum(-1, keepdim=True)
        return scores.sum(-1), scores

    def ours(w: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rest, scores = shared(w, g)
        return rest * times, scores

    def worse(w: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        exact = shared(w.double(), g.double())[1]
        rest, scores = shared(w, g)
        return rest, (exact + times * (scores - exact)).float()

    given = torch.randn(512, 128), torch.randn(512, 128)
    assert error(shared, ours, *given).good == good
    assert not error(shared, worse, *given).good


def test_of_float64_eagers_error_is_told_by_float32() -> None:
    """There is no wider truth, of which eager's own error would be known."""

    def noise(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ x.mT
        return (y - y.mean(0)).sum(0), y

    def otherwise(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x.flip(-1) @ x.flip(-1).mT).flip(0)
        return (y - y.mean(0)).sum(0), y.flip(0)

    def rounded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(v.double() for v in noise(x.float()))

    x = torch.randn(60, 40, dtype=torch.float64)
    found = error(noise, otherwise, x, moved=True)
    assert found.good, found
    assert not error(noise, rounded, x).good
    assert not error(noise, lambda x: tuple(v * (1 + 1e-12) + 1e-12 for v in noise(x)), x).good


def test_each_of_a_list_is_a_result() -> None:
    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.ops.aten.split.Tensor(x * 2, 2))

    assert error(parts, parts, torch.randn(8)).good
    last_off = error(parts, lambda x: [*parts(x)[:3], parts(x)[3] + 1], torch.randn(8))
    assert not last_off.good and last_off.where.startswith("result 3")


def test_where_a_generator_stood_is_no_number() -> None:
    """PyTorch's attention on GPUs gives it without a value where nothing is dropped."""

    def attention(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, torch.tensor(3)

    def elsewhere(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, torch.tensor(5)

    with torch.library._scoped_library("refold_test", "FRAGMENT") as library:
        for name, said in (("attention", "philox_seed"), ("counted", "count")):
            library.define(f"{name}(Tensor x) -> (Tensor output, Tensor {said})")
            library.impl(name, attention, "CompositeExplicitAutograd")
        x = torch.randn(8)
        assert error(lambda x: torch.ops.refold_test.attention(x), elsewhere, x).good
        assert not error(lambda x: torch.ops.refold_test.counted(x), elsewhere, x).good


def test_a_forward_is_measured_far_from_zero_too() -> None:
    def near(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 100, x * (1 + 1e-4), x)

    x = torch.randn(32, 256)
    assert error(lambda x: x * 1, near, x).good
    found = error(lambda x: x * 1, near, x, moved=True)
    assert not found.good and found.where == "result 0, moved values"


def test_what_is_written_to_an_argument_counts() -> None:
    def step(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        kept.copy_(kept * 0.9 + x.mean(0) * 0.1)
        return x * 2

    def forgets(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return x * 2

    args = torch.randn(8, 4), torch.randn(4)
    assert error(step, step, *args).good
    found = error(step, forgets, *args)
    assert not found.good and found.where.startswith("what is written to kept_1")


def test_arguments_lie_as_they_are_given_and_keep_what_they_hold() -> None:
    """Transposed, spread over a batch, whole numbers and masks; a domain that is left."""
    seen: list[Any] = []

    def pick(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> Any:
        return torch.where(m, x, y)[i].sqrt(), (x > y), x.argmax(1)

    def ours(*args: torch.Tensor) -> Any:
        seen.append([(a.shape, a.stride(), a.dtype) for a in args])
        return pick(*args)

    x, y = torch.randn(5, 6).t(), torch.randn(5).expand(6, 5)
    args = x, y, torch.tensor([3, 1]), torch.rand(6, 5) < 0.5
    assert error(pick, ours, *args).good  # square roots of negative numbers say nothing
    assert seen[0] == [(a.shape, a.stride(), a.dtype) for a in args]
    wrong = error(pick, lambda x, y, i, m: (*pick(x, y, i, m)[:2], x.argmin(1)), *args)
    assert not wrong.good and wrong.where.startswith("result 2")


def test_a_call_that_is_not_there_in_float64_is_made_in_float32() -> None:
    library = torch.library.Library("refold_tests", "FRAGMENT")

    def narrow(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise RuntimeError("expected float32")
        return x.exp()

    library.define("narrow(Tensor x) -> Tensor")
    library.impl("narrow", narrow, "CompositeExplicitAutograd")
    call = torch.ops.refold_tests.narrow
    assert error(lambda x: call(x) * 3, lambda x: call(x) * 3, torch.randn(4, 4)).good

    def never(x: torch.Tensor) -> torch.Tensor:
        return x

    made = graph(lambda x: call(x) * 3, torch.randn(4, 4))
    library.impl("narrow", narrow, "CPU")
    for node in made.graph.nodes:
        if node.target is call.default:
            node.target = torch.ops.aten.linalg_cholesky_ex.default  # of no positive matrix
            node.kwargs = {"check_errors": True}
    with pytest.raises(Unmeasured):
        measured(made, boxed(never))


def test_buckets_are_those_of_the_models_own_dtype() -> None:
    """A table that float64 would divide otherwise is not eager's error."""

    def look(table: torch.Tensor) -> torch.Tensor:
        places = torch.arange(64).float() * 0.7 / 0.7
        return F.embedding(places.long(), table).exp()

    def otherwise(table: torch.Tensor) -> torch.Tensor:
        return F.embedding((torch.arange(64).double() * 0.7 / 0.7).long(), table).exp()

    table = torch.randn(64, 4)
    assert error(look, look, table).good
    assert not error(look, otherwise, table).good


def test_whole_numbers_name_rows_that_there_are() -> None:
    """As many as there are, where the graph shows of what: rows that are all the same would be
    normalised to nothing but rounding."""

    def look(table: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, at: torch.Tensor) -> Any:
        wanted = torch.where(ids != -100, ids, 0)
        found = F.embedding(wanted.unsqueeze(0), table)
        return found, x.gather(1, ids.unsqueeze(1)), table[at + 1]

    seen: list[tuple[int, int]] = []

    def ours(*args: torch.Tensor) -> Any:
        seen.append((int(args[2].max()), int(args[3].max())))
        return look(*args)

    args = torch.randn(9, 4), torch.randn(50, 7), torch.zeros(50).long(), torch.zeros(3).long()
    made = graph(look, *args)
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(made).propagate(*args)
    assert measured(made, boxed(ours)).good
    assert seen[0] == (6, 0)  # of seven columns, not of nine rows; of what is added to, nothing


def test_the_random_state_is_left() -> None:
    state = torch.get_rng_state()
    error(torch.sigmoid, torch.sigmoid, torch.randn(4))
    del state
    torch.manual_seed(3)
    before = torch.get_rng_state()
    error(torch.sigmoid, torch.sigmoid, torch.ones(4))
    assert torch.equal(torch.get_rng_state(), before)


# --- what is decided by it ------------------------------------------------------------------------
def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


@pytest.fixture
def inaccurate(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Each graph and part is found inaccurate; whether values were moved. Nothing is compiled."""
    asked: list[bool] = []

    def found(*args: Any, moved: bool, **given: Any) -> Measured:
        asked.append(moved)
        return Measured(23.0, "result 0, normal values", False)

    monkeypatch.setattr(choose, "measured", found)
    monkeypatch.setattr(choose, "load", lambda *args: lambda given: None)
    monkeypatch.setattr(choose, "_told", set())
    return asked


def test_an_inaccurate_graph_is_inductors_with_one_warning(
    inaccurate: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Forward and backward; a script is left for each."""
    monkeypatch.setenv("REFOLD_REPRO", str(tmp_path))
    model, x = small(), torch.randn(6, 8)
    with all_ours(), collected() as found, caplog.at_level(logging.WARNING, "refold"):
        fast = compiled(model)
        torch.testing.assert_close(fast(x), model(x))
        fast(x).sum().backward()
    assert [(g.kind, g.by) for g in found] == [("forward", "inductor"), ("backward", "inductor")]
    words = "ours has 23 times eager's error against float64 (result 0, normal values)"
    assert all(g.reason == words for g in found)
    (told,) = (r.getMessage() for r in caplog.records if r.name.startswith("refold"))
    assert words in told and str(tmp_path) in told
    assert len(list(tmp_path.iterdir())) == 2
    assert inaccurate[0] and not inaccurate[-1]  # a backward's arguments are not moved


def test_an_inaccurate_part_is_inductors(
    inaccurate: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "call_of", lambda part: None)
    model, x = small(), torch.randn(6, 8)
    with all_ours(), parts_alone(), collected() as found, torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert [g.by for g in found] == ["inductor"]
    assert found[0].reason.startswith("ours has 23 times eager's error") and inaccurate


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **given: Any) -> Measured:
        raise AssertionError("measured")

    monkeypatch.setattr(choose, "measured", never)
    monkeypatch.setattr(graphs, "WORTH", 0.0)
    model, x = nn.Linear(4, 4), torch.randn(6, 4)
    with collected() as found, torch.no_grad():
        run = compiled(nn.Sequential(model, nn.ReLU()), options={"check": False})
        torch.testing.assert_close(run(x), model(x).relu())
    assert [(g.by, g.error) for g in found] == [("refold", None)]


class Block(nn.Module):
    """A norm over channels, and two maps of them as convolutions, of few places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(320)
        self.first, self.second = nn.Conv2d(320, 1280, 1), nn.Conv2d(1280, 320, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.second(F.gelu(self.first(x)))


def test_a_convolution_reads_images_as_eager_lays_them() -> None:
    """PyTorch's convolution of four places adds up channel by channel where they lie first."""
    model, x = Block(), torch.randn(2, 320, 2, 2)
    with by_plans(), all_ours(), collected() as found:
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert [(g.by, g.reason) for g in found] == [("refold", "it gains by price")]


def test_sparse_gradients_are_inductors_and_no_failure() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.head = nn.EmbeddingBag(40, 8, sparse=True, mode="mean"), nn.Linear(8, 3)

        def forward(self, ids: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.head(self.rows(ids, starts)))

    model = Bag()
    call = torch.randint(0, 40, (10,)), torch.tensor([0, 3, 7])
    with by_plans(), all_ours(), collected() as found:
        compiled(model)(*call).sum().backward()
    assert [g.reason for g in found if "failed" in g.reason] == []
    expected = torch.autograd.grad(model(*call).sum(), model.rows.weight)[0]
    torch.testing.assert_close(model.rows.weight.grad.to_dense(), expected.to_dense())


def test_a_view_of_what_a_library_lays_out_in_its_own_way() -> None:
    """As cuDNN gives an image channels last at times, where the graph was made of one that is
    not: the view behind it was none, and nothing was measured."""
    x, w = torch.randn(2, 3, 4, 4), torch.randn(5, 3, 1, 1)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.view.default(torch.conv2d(x, w), [2, 80])

    def elsewhere(*args: Any) -> torch.Tensor:
        return torch.ops.aten.convolution.default(*args).to(memory_format=torch.channels_last)

    made = graph(function, x, w)
    (node,) = (n for n in made.graph.nodes if n.target is torch.ops.aten.convolution.default)
    node.target = elsewhere
    made.recompile()
    with FakeTensorMode():
        node.meta["val"] = torch.empty(2, 5, 4, 4)
    found = measured(made, boxed(function))
    assert found.good and found.ratio == pytest.approx(1.0, abs=0.1)
