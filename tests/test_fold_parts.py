"""Large folds are computed in parts: the same numbers, and nothing of the weight's size between."""

from __future__ import annotations

import pytest
import torch

from refold.emit import fold_parts
from refold.emit.fold import fold_lines
from refold.emit.fold_parts import parts_of, with_means
from refold.ir import Node, as_scalar, leaf, make
from refold.ir.graph import topological
from refold.plan import Fold
from refold.runtime.rounding import _refold_rounded

TURN = (0, 1, 2, 4, 3)


def weight(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
    return leaf("param", shape, dtype, name=name)


def fold_of(node: Node) -> Fold:
    return Fold("f", node, tuple(n for n in topological([node]) if n.op == "param"))


def turned(node: Node) -> Node:
    return make("permute", node, order=TURN)


def pooled(node: Node, size: int = 4, stride: int = 4) -> Node:
    return make("avg_pool", node, size=size, stride=stride, padding=0, count_include_pad=True)


def flat(node: Node, *shape: int) -> Node:
    return make("reshape", node, shape=(1,) * (5 - len(shape)) + shape)


W = weight("w", 96, 128)
SCALE, WIDTH = weight("scale", 96), weight("width", 128)
EPSILON = as_scalar(1e-5, torch.float32)
PARTS = {
    "rows of a pooling that is turned": turned(pooled(turned(W))),
    "a pooling along rows": pooled(W),
    "rows that are scaled": make("mul", W, flat(SCALE, 96, 1)),
    "rows and columns that are scaled": make(
        "mul", make("mul", W, flat(SCALE, 96, 1)), make("rsqrt", make("add", WIDTH, EPSILON))
    ),
    "sums of rows": make("sum", W, axes=(-1,)),
    "groups of rows": make("mean", flat(W, 24, 4, 128), axes=(-2,)),
    "a transposed weight": turned(make("neg", W)),
}
WHOLE = {
    "columns of a sum, in pieces": make("sum", W, axes=(-2,)),
    "a weight and itself, turned": make("add", weight("q", 96, 96), turned(weight("q", 96, 96))),
    "one number of all": make("sum", W, axes=(-2, -1)),
    "windows that overlap": pooled(turned(W), 4, 2),
}


def computed(fold: Fold, given: dict[str, torch.Tensor], in_parts: bool) -> torch.Tensor:
    arguments, lines = fold_lines(fold, in_parts=in_parts)
    assert any("range(" in line for line in lines) == in_parts
    text = f"def fold({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
    names: dict[str, object] = {"torch": torch, "_refold_rounded": _refold_rounded}
    exec(text, names)
    return names["fold"](*(given[s["name"]] for s in fold.sources))  # type: ignore[operator,no-any-return]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for name, number in (("LARGE", 1024), ("_MOST", 1024), ("_LEAST", 128), ("_RUN", 32)):
        monkeypatch.setattr(fold_parts, name, number)


@pytest.mark.parametrize("node", PARTS.values(), ids=PARTS.keys())
def test_parts_are_the_whole(node):
    fold = fold_of(node)
    drawn = {s["name"]: torch.randn([d for d in s.shape if d > 1]) for s in fold.sources}
    given = {name: t.abs() for name, t in drawn.items()}
    found, wanted = (computed(fold, given, parts) for parts in (True, False))
    assert found.shape == wanted.shape and found.stride() == wanted.stride()
    # float64 that is summed in another order is rounded to the same number, or to the next one
    assert torch.allclose(found, wanted, rtol=2**-23, atol=0)


@pytest.mark.parametrize("node", PARTS.values(), ids=PARTS.keys())
def test_what_a_part_is_computed_of_stays_in_a_cache(node):
    found = parts_of(fold_of(node), with_means(node))
    assert found is not None
    for inner in topological([found.node]):
        assert torch.Size([int(d) for d in inner.shape]).numel() < fold_parts._MOST


@pytest.mark.parametrize("node", WHOLE.values(), ids=WHOLE.keys())
def test_what_is_no_parts_side_by_side_is_computed_as_a_whole(node):
    assert parts_of(fold_of(node), with_means(node)) is None


def test_a_small_fold_is_computed_as_a_whole(monkeypatch):
    monkeypatch.setattr(fold_parts, "LARGE", 96 * 128 + 1)
    assert parts_of(fold_of(pooled(W)), pooled(W)) is None


def test_a_name_that_is_taken_is_not_taken_again():
    node = make("mul", W, flat(weight("w_part", 96), 96, 1))
    given = {"w": torch.randn(96, 128), "w_part": torch.randn(96)}
    assert torch.equal(computed(fold_of(node), given, True), computed(fold_of(node), given, False))


def test_a_product_out_of_range_is_noticed_of_all_parts_together():
    node = make("mul", W, flat(SCALE, 96, 1))
    given = {"w": torch.full((96, 128), 1e30), "scale": torch.cat([torch.ones(95), torch.ones(1)])}
    computed(fold_of(node), given, True)
    given["scale"][95] = 1e30
    with pytest.raises(RuntimeError, match="leaves the range"):
        computed(fold_of(node), given, True)
    # an element that is too small is negligible beside those of another part
    given["w"][95], given["scale"][95] = 1e-30, 1e-20
    computed(fold_of(node), given, True)


# --- where a fold jumps ---------------------------------------------------------------------------
def stepped(node: Node) -> Node:
    """Whole numbers, by way of values that are rounded."""
    scale = as_scalar(0.7, torch.float32)
    return make("floor", make("div", make("mul", node, scale), scale))


def test_a_fold_jumps_where_pytorch_does() -> None:
    """Computed in float64, 16 of these 64 whole numbers would be others."""
    w = torch.arange(64.0)
    wanted = (w * 0.7 / 0.7).floor()
    assert int((wanted != (w.double() * 0.7 / 0.7).floor()).sum()) == 16
    v = weight("v", 64)
    assert torch.equal(computed(fold_of(stepped(v)), {"v": w}, False), wanted)
    whole = make("cast", stepped(v), dtype=torch.int64)
    assert torch.equal(computed(fold_of(whole), {"v": w}, False), wanted.long())
    # what is read beside the jump stays in float64
    beside = make("mul", make("mul", stepped(v), v), as_scalar(0.1, torch.float32))
    made = computed(fold_of(beside), {"v": w}, False)
    assert torch.equal(made, (wanted.double() * w.double() * 0.1).float())
    mask = make("gt", stepped(v), v)
    assert torch.equal(computed(fold_of(mask), {"v": w}, False), wanted > w)
