"""What a plan decides of products: kernels by rows, packed sides, values in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from refold.devices import DEVICES, DeviceModel
from refold.emit.targets import target_of
from refold.ir import Dim, Graph, Node, Output, Sym, as_scalar, leaf, make
from refold.plan import Group, Plan, Storage
from refold.planner import make_plan, to_tune, tuned
from refold.schedule import WGMMA, Schedule

N = Sym.named("n", 4096)


@dataclass(frozen=True)
class Case:
    """A product of rows of x with a weight; what its plan says of it in words, and packs.

    batches: how many products, each with a value for its weight. transposed: x lies the other way
    round. folded: the weight is computed from parameters.
    """

    rows: Dim
    columns: int
    depth: Dim
    words: str
    packs: tuple[str, ...] = ("x pack", "w pack")
    itself: bool = True
    device: str = "cuda:sm_90"
    accuracy: str = "ieee"
    dtype: torch.dtype = torch.float32
    batches: int = 1
    transposed: bool = False
    folded: bool = False


LARGE = "wgmma tiles of 256 x 128"
SMALL_FIRST = "plain up to 16 rows; wgmma tiles of 128 x 128, 4 blocks a tile up to 256 rows"
AMPERE = "mma_sync tiles of 128 x 128"
DIRECT = ", x split on its way"
K = Sym.named("k", 256)

TABLE = (
    Case(8, 4096, 4096, "ieee: plain", (), itself=False),
    Case(4096, 4096, 4096, f"ieee: {LARGE}"),
    Case(N, 4096, 4096, f"ieee: {SMALL_FIRST}; {LARGE}"),
    Case(1024, 512, 8192, f"ieee: {LARGE}, 8 blocks a tile{DIRECT}", ("w pack",)),
    Case(4096, 4096, 4096, f"tf32: {LARGE}", accuracy="tf32"),
    # a GPU without TMA packs before, and has one tile
    Case(4096, 4096, 4096, f"ieee: {AMPERE}", itself=False, device="cuda:sm_80"),
    Case(
        *(N, 4096, 4096),
        f"ieee: plain up to 16 rows; {AMPERE}, 4 blocks a tile up to 256 rows; {AMPERE}",
        itself=False,
        device="cuda:sm_120",
    ),
    # 16 bits lie as they are; TMA wants rows at multiples of 16 bytes
    Case(4096, 4096, 4096, f"float16: {LARGE}", (), itself=False, dtype=torch.float16),
    Case(4096, 4096, 4100, f"float16: {AMPERE}", (), itself=False, dtype=torch.float16),
    Case(
        *(4096, 4096, 4096),
        f"bfloat16: {LARGE}",
        ("w hi_lo_bfloat16",),
        itself=False,
        dtype=torch.bfloat16,
        folded=True,
    ),
    # of a batch both sides are packed before, but for rows that TMA can take as they are
    Case(4096, 128, 256, f"ieee: {LARGE}{DIRECT}", ("w pack",), itself=False, batches=16),
    Case(
        *(4096, 128, K),
        f"ieee: {LARGE} at depths that are no multiple of 4; {LARGE}{DIRECT}",
        ("w pack",),
        batches=16,
    ),
    Case(1024, 1024, 1024, f"ieee: {LARGE}", itself=False, batches=8),
    Case(
        4096, 2048, 1024, f"ieee: {LARGE}", ("x pack_transposed", "w pack"), False, transposed=True
    ),
)


def group_of(case: Case) -> Group:
    shape = (case.batches, case.rows, case.depth) if case.batches != 1 else (case.rows, case.depth)
    lies = (*shape[:-2], shape[-1], shape[-2]) if case.transposed else shape
    x = leaf("input", lies, case.dtype, name="x", index=0)
    weight = (*shape[:-2], case.columns, case.depth)
    w = leaf("param" if case.batches == 1 else "input", weight, case.dtype, name="w", index=1)
    order = (0, 1, 2, 4, 3)
    a: Node = make("permute", x, order=order) if case.transposed else x
    b: Node = w
    if case.dtype != torch.float32:
        a, b = (make("cast", i, dtype=torch.float32) for i in (a, b))
    if case.folded:
        b = make("mul", b, b)
    y = make("relu", make("linear", a, b))
    graph = Graph((Output(y, (*shape[:-2], case.rows, case.columns)),))
    device = DeviceModel(DEVICES[case.device], case.accuracy)
    (group,) = make_plan(graph, Storage(), device).groups
    return group


@pytest.mark.parametrize("case", TABLE, ids=lambda c: f"{c.device} {c.words}")
def test_schedules(case: Case) -> None:
    group = group_of(case)
    kernel = group.kernel
    assert kernel is not None
    names = dict(zip(group.sides, "xw", strict=True))
    packs = tuple(f"{names[node]} {form}" for node, form in kernel.packs)
    assert (str(kernel), packs, kernel.itself is not None) == (case.words, case.packs, case.itself)


def normalised(rows: Dim, accuracy: str) -> Plan:
    """A product whose columns' moments are read where its value is normalised."""
    x = leaf("input", (rows, 128), torch.float32, name="x", index=0)
    w = leaf("param", (4096, 128), torch.float32, name="w")
    y = make("linear", x, w)
    mean = make("mean", y, axes=(-2,))
    var = make("var", y, axes=(-2,), correction=0)
    out = make(
        "mul", make("sub", y, mean), make("rsqrt", make("add", var, as_scalar(1e-5, var.dtype)))
    )
    return make_plan(
        Graph((Output(out, (rows, 4096)),)),
        device=DeviceModel(DEVICES["cuda:sm_90"], accuracy),
    )


@pytest.mark.parametrize(
    ("rows", "accuracy", "words"),
    [
        (8192, "tf32", "stored in 16 bits from 4096 rows on"),
        (Sym.named("n", 8192), "tf32", "stored in 16 bits from 4096 rows on"),
        (2048, "tf32", None),  # the cache holds it
        (8192, "ieee", None),  # whose error it would be
    ],
)
def test_values_in_16_bits(rows: Dim, accuracy: str, words: str | None) -> None:
    product = normalised(rows, accuracy).groups[0]
    assert product.kernel is not None
    assert (product.kernel.quantized_from is None) == (words is None)
    assert words is None or str(product.kernel).endswith(words)


def test_no_device_but_a_gpu_has_kernels_of_products() -> None:
    assert group_of(Case(4096, 4096, 4096, "", device="cpu")).kernel is None
    group = group_of(Case(4096, 4096, 4096, "", device="cpu"))
    with pytest.raises(ValueError, match="expected a plan for a GPU"):
        target_of(DEVICES["cuda:sm_90"], "ieee").text(group, "kernel")


def test_a_plan_is_cut_anew_and_nothing_else_of_it_changes() -> None:
    device = DeviceModel(DEVICES["cuda:sm_90"], "tf32")
    plan = normalised(8192, "tf32")
    assert list(to_tune(plan)) == [("tf32", (8192, 4096, 128))]
    wide = Schedule(WGMMA, "wide")
    again = tuned(plan, device, lambda rows, cols, depth, kind: wide)
    assert (plan.graph, plan.folds, plan.memory) == (again.graph, again.folds, again.memory)
    first, *rest = zip(plan.groups, again.groups, strict=True)
    assert first[1].kernel is not None and first[1].kernel.schedule == wide
    assert first[0] != first[1] and all(a == b for a, b in rest)
    assert tuned(again, device, lambda *_: Schedule(WGMMA, "tall")).groups == plan.groups


def of_rows(width: Dim, reduces: bool, dtype: torch.dtype, device: str) -> Group:
    """A softmax of rows, or what is pointwise of them."""
    x = leaf("input", (64, width), dtype, name="x", index=0)
    y = make("softmax", x, axis=-1) if reduces else make("relu", x)
    storage = Storage(real=torch.float64) if dtype == torch.float64 else Storage()
    graph = Graph((Output(y, (64, width)),))
    return make_plan(graph, storage, DeviceModel.of(device)).groups[-1]


TWO, ONE = "2 blocks hold rows on a multiprocessor", "a block holds rows on a multiprocessor"
ONCE = "statistics that need each other in one pass"
SPLIT = "several blocks a row where it is long"


@pytest.mark.parametrize(
    ("width", "reduces", "dtype", "words"),
    [
        (1024, True, torch.float32, TWO),
        (1024, True, torch.float64, ONE),
        (16384, True, torch.float32, TWO),
        (32772, True, torch.float32, f"{TWO}; {ONCE}"),  # more than a block holds
        (5001, True, torch.float32, f"{TWO}; {ONCE}"),  # and one by one it holds an eighth of that
        (65536, True, torch.float32, f"{TWO}; {ONCE}; {SPLIT}"),
        (Sym.named("n", 1024), True, torch.float32, f"{TWO}; {SPLIT}"),
        (1024, False, torch.float32, TWO),
        (Sym.named("n", 1024), False, torch.float32, TWO),
    ],
)
def test_schedules_of_rows(width: Dim, reduces: bool, dtype: torch.dtype, words: str) -> None:
    group = of_rows(width, reduces, dtype, "cuda:sm_90")
    assert str(group.rows_schedule) == words
    assert of_rows(width, reduces, dtype, "cpu").rows_schedule is None


@pytest.mark.parametrize(("op", "held"), [("softmax", True), ("logsumexp", False)])
def test_registers_hold_channels_that_would_be_read_again(op: str, held: bool) -> None:
    x = leaf("input", (128, 64, 126, 126), torch.float32, name="x", index=0)
    value = make(op, x, axis=-3) if op == "softmax" else make(op, x, axes=(-3,))
    graph = Graph((Output(value, value.shape[1:]),))
    (group,) = make_plan(graph, device=DeviceModel.of("cuda:sm_90")).groups
    assert group.family == "channels"
    assert (str(group.rows_schedule) == "registers hold channels") is held
