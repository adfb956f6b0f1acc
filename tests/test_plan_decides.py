"""A plan decides, and text follows from it alone: what writes text chooses nothing."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captures import captured_once, drawn
from refold import pipeline
from refold.derive import Options, derive
from refold.devices import DeviceModel
from refold.emit.module import Emission, emit
from refold.emit.target import Target
from refold.ir import Graph, Output, Sym, leaf, make
from refold.plan.buffers import Fresh, InPlaceOf
from refold.plan.show import show
from refold.planner import make_plan, tuned
from refold.schedule import WGMMA, Schedule

SOURCE = Path(__file__).resolve().parents[1] / "src" / "refold"
WRITERS = sorted(
    p
    for glob in ("emit/*.py", "codegen/*.py", "families/*/*kernel*.py", "families/*/packing.py")
    for p in SOURCE.glob(glob)
)

# what text may ask of schedules: what they are, not which one to take
READ = {"SKINNY_ROWS", "Schedule"}
DECIDES = re.compile(
    r"refold\.(planner|price|tune|devices\.(table|model|DeviceModel)"
    r"|families\.\w+\.(claim|schedules|price))\b"
)


def decisions(source: str) -> list[str]:
    """What a module imports that chooses schedules or makes plans."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "refold.schedule":
            found += [a.name for a in node.names if a.name not in READ]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{a.name}" for a in node.names]
            found += [n for n in names if DECIDES.match(n)]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
            found += [n for n in names if n == "refold.schedule" or DECIDES.match(n)]
    return found


@pytest.mark.parametrize("path", WRITERS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_what_writes_text_decides_nothing(path: Path) -> None:
    assert not decisions(path.read_text()), f"{path.name}: decide it in the plan, write it here"


@pytest.mark.parametrize(
    "text",
    [
        "from refold.schedule import default_schedule",
        "from refold.families.matmul.schedules import schedule",
        "from refold.planner import make_plan",
        "import refold.schedule",
        "from refold.devices import DeviceModel",
        "from refold.families.matmul.price import price",
    ],
)
def test_a_decision_where_text_is_written_is_told(text: str) -> None:
    assert decisions(text)


# --- text follows from the plan -------------------------------------------------------------------
def of_zoo(name: str, target: str) -> tuple[Emission, Target]:
    """What goes into the file of a model of the zoo."""
    back, device = pipeline.target_for(target, "ieee")
    module, inputs = drawn(name)
    with captured_once():
        derived = derive(module, inputs, device, Options(accuracy=False))
    modes = tuple(d.mode for d in derived)
    return Emission(module, "# Model is bound.", modes, name), back


@pytest.mark.parametrize(
    ("name", "target"),
    [("BatchNormTrain", "cpu"), ("GroupedConvolution", "cpu"), ("Scores", "cuda:sm_90")],
)
def test_one_plan_is_one_text(name: str, target: str) -> None:
    emission, back = of_zoo(name, target)
    before = [show(m.plan) for m in emission.modes if m.plan is not None]
    assert emit(emission, back) == emit(emission, back)
    assert before == [show(m.plan) for m in emission.modes if m.plan is not None]


def test_another_place_is_another_text() -> None:
    """And the memory that is asked for is all that changes."""
    emission, back = of_zoo("BatchNormTrain", "cpu")
    train, *others = emission.modes
    assert train.plan is not None
    buffers = train.plan.buffers
    (over,) = (n for n, p in buffers.places.items() if isinstance(p, InPlaceOf))
    fresh = replace(buffers, places={**buffers.places, over: Fresh()})
    train = replace(train, plan=replace(train.plan, buffers=fresh))
    old = emit(emission, back).splitlines()
    new = emit(replace(emission, modes=(train, *others)), back).splitlines()
    (pair,) = ((a, b) for a, b in zip(old, new, strict=True) if a != b)
    name = pair[0].split()[0]
    assert pair[0].split("  #")[0].split() == [name, "=", "product"]
    assert pair[1].strip().startswith(f"{name} = _refold_empty(")


def test_another_schedule_is_another_text() -> None:
    emission, back = of_zoo("Scores", "cuda:sm_90")
    (mode,) = emission.modes
    assert mode.plan is not None
    device = pipeline.target_for("cuda:sm_90", "ieee")[1]
    plan = tuned(mode.plan, device, lambda *sizes: Schedule(WGMMA, "wide"))
    assert plan == mode.plan, "a batch is cut by rule"
    first = mode.plan.groups[0]
    assert first.kernel is not None
    wide = replace(first.kernel, by_rows=((None, Schedule(WGMMA, "wide")),))
    steps = tuple(replace(s, kernel=wide) if s is first else s for s in mode.plan.steps)
    text = emit(replace(emission, modes=(replace(mode, plan=replace(plan, steps=steps)),)), back)
    assert "Wide, 1>" in text and "Wide, 1>" not in emit(emission, back)


PRINTED = """\
keep w [6 x 6] float32, row after row
keep v [6 x 6] float32, row after row
read buffer s [6] float32
lay out argument x [n x 6] float32 row after row
matmul0, matmul over n x 6: linear relu max
  reads x, w
  %3 [n x 6] float32 in new memory
  %4 [n] float32 in new memory
pointwise1, pointwise over n x 6: sub exp
  reads %3, %4
  %6 [n x 6] float32 in the memory of %3
matmul2, matmul over n x 6: linear mean add
  reads %6, v, s
  %8 [n x 6] float32 in new memory
  %11 [6] float32 in buffer s
return %8: as it lies
write buffer s = %11: its kernel writes it there"""


def test_a_plan_is_printed() -> None:
    n = Sym.named("n", 64)
    x = leaf("input", (n, 6), torch.float32, name="x", index=0)
    w, v = (leaf("param", (6, 6), torch.float32, name=name) for name in "wv")
    s = leaf("state", (6,), torch.float32, name="s")
    y = make("relu", make("linear", x, w))
    below = make("exp", make("sub", y, make("max", y, axes=(-1,))))
    out = make("linear", below, v)
    new = make("add", s, make("mean", out, axes=(-2,)))
    assert show(make_plan(Graph((Output(out, (n, 6)), Output(new, (6,), "s"))))) == PRINTED


def test_a_plan_for_a_gpu_is_printed_with_its_schedules() -> None:
    n = Sym.named("n", 4096)
    x = leaf("input", (n, 4096), torch.float32, name="x", index=0)
    w = leaf("param", (4096, 4096), torch.float32, name="w")
    plan = make_plan(
        Graph((Output(make("linear", x, w), (n, 4096)),)), device=DeviceModel.of("cuda:sm_90")
    )
    lines = show(plan).splitlines()
    assert "keep w packed" in lines and "  is given w packed" in lines
    assert "  makes x packed itself" in lines
    assert any(
        line.startswith("  ieee: plain up to 16 rows; wgmma tiles of 128 x 128, 4 blocks a tile up")
        for line in lines
    )
