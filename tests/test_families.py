"""What a family's samples say of it: which it claims and which it refuses, and that its kernels
compute them, in every dtype, with other sizes, at odd addresses, with NaN and infinities.

A folder of families/ brings its samples; nothing here names a family.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from agree import check_values
from captures import derived
from refold import families, introspect, pipeline
from refold.convolve import ON_CPU, Choice, candidates
from refold.devices import DEVICES, DeviceModel
from refold.families import BY_NAME, FAMILIES, Family
from refold.families.samples import ROWS, Sample
from refold.flat import FLAT
from refold.plan import Plan
from refold.planner import tuned
from test_models import written
from tests.emulator.module import emulated

TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90")
ALL = [(f, s) for f in FAMILIES for s in f.samples]
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def choice_of(kind: str, target: str) -> Choice:
    """All convolutions by our kernels, of one accuracy, by the first that takes one."""
    if target == "cpu":
        return lambda c: ON_CPU
    features = DEVICES["cuda:sm_80"].features
    return lambda c: next(iter(candidates(c, kind, features)), None)


def has_kernels(family: Family, target: str) -> bool:
    return (family.cpp if target == "cpu" else family.cuda) is not None


def is_claimed(family: Family, sample: Sample, target: str) -> bool:
    device = DEVICES[target]
    there = sample.only in ("", device.toolchain, *device.features)
    return not sample.refused and there and has_kernels(family, target)


def claimed_on(target: str) -> list[tuple[Family, Sample]]:
    return [(f, s) for f, s in ALL if is_claimed(f, s, target)]


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, (Family, Sample)) else None


def plan_of(sample: Sample, device: DeviceModel) -> Plan | None:
    """The plan of a sample for a device, or none."""
    return derived(sample, device).mode.plan


@pytest.mark.parametrize(("family", "sample"), ALL, ids=name_of)
def test_a_sample_is_claimed_or_refused(family: Family, sample: Sample) -> None:
    for target in TARGETS:
        _, device = pipeline.target_for(target, convolutions=choice_of("ieee", target))
        plan = plan_of(sample, device)
        found = [g.family for g in plan.groups] if plan is not None else []
        assert (family.name in found) is is_claimed(family, sample, target), f"{target}: {found}"


def test_a_family_that_claims_another_sample_than_it_says_is_found() -> None:
    family, sample = ALL[0]
    refused = next(s for s in family.samples if s.refused)
    for wrong in (replace(sample, refused=True), replace(refused, refused=False)):
        with pytest.raises(AssertionError, match="cpu"):
            test_a_sample_is_claimed_or_refused(family, wrong)
    with pytest.raises(AssertionError, match="cuda:sm_80"):
        test_a_sample_is_claimed_or_refused(replace(family, cuda=None), sample)


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_a_family_shows_what_it_takes_and_what_it_refuses(family: Family) -> None:
    names = [s.name for s in family.samples]
    assert len(set(names)) == len(names)
    assert {s.refused for s in family.samples} == {True, False}


def test_a_folder_is_a_family_and_stands_in_the_list() -> None:
    root = Path(families.__file__).parent
    folders = {p.name for p in root.iterdir() if (p / "__init__.py").exists()}
    assert folders == set(BY_NAME) and len(BY_NAME) == len(FAMILIES)


def compared(text: str) -> list[str]:
    """Names that a file compares a family's with."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(s, ast.Attribute) and s.attr == "family" for s in sides):
                inner = (n for s in sides for n in ast.walk(s))
                found += [n.value for n in inner if isinstance(n, ast.Constant)]
    return found


def test_no_other_file_names_a_family() -> None:
    root = Path(families.__file__).parent
    assert compared('g.family in ("rows", "columns") or "matmul" == g.family') != []
    for path in root.parent.rglob("*.py"):
        text = path.read_text()
        assert path.is_relative_to(root) or ".family" not in text or not compared(text), path


# --- numbers ------------------------------------------------------------------------------------
class Together(nn.Module):
    """Many samples as one function, so that their kernels are compiled once."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = nn.ModuleList(s.module() for s in samples)
        self.counts = [len(s.shapes) for s in samples]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, at = [], 0
        for sample, count in zip(self.samples, self.counts, strict=True):
            results.append(sample(*inputs[at : at + count]))
            at += count
        return tuple(results)


FEW, LONG = 3, 1_000_000  # rows, and elements for which kernels without optimization take a second


def drawn(target: str, rows: int | None = None) -> list[torch.Tensor]:
    """Inputs of all samples: of as many rows as they are captured with, or of `rows`, but of FEW
    where these would be LONG."""
    torch.manual_seed(1)
    found = []
    for _, sample in claimed_on(target):
        sizes = ((1 if d == ROWS else int(d) for d in shape) for shape in sample.shapes)
        long = rows is not None and rows * sum(map(math.prod, sizes)) > LONG
        found += sample.inputs(FEW if long else rows)
    return found


def at_odd_addresses(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that begin one element after where memory begins."""
    found = [torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape) for x in inputs]
    return [y.copy_(x) for x, y in zip(inputs, found, strict=True)]


def with_special_values(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    found = [x.clone() for x in inputs]
    for x in found:
        flat = x.view(-1)
        for place, value in ((0, torch.nan), (len(flat) // 2, torch.inf), (-1, -torch.inf)):
            flat[place] = value
    return found


CALLS: dict[str, Callable[[str], list[torch.Tensor]]] = {
    "as captured": drawn,
    "two rows": lambda target: drawn(target, 2),
    "19 rows": lambda target: drawn(target, 19),
    "at odd addresses": lambda target: at_odd_addresses(drawn(target)),
    "special values": lambda target: with_special_values(drawn(target)),
}


def inputs_of(call: str, dtype: torch.dtype, target: str) -> list[torch.Tensor]:
    found = CALLS[call](target)
    if dtype == torch.float32:
        return found
    found = [x.to(dtype) for x in found]
    return at_odd_addresses(found) if call == "at odd addresses" else found


@cache
def built(dtype: torch.dtype, target: str) -> tuple[nn.Module, nn.Module]:
    """All samples as one module, and its fast twin."""
    torch.manual_seed(0)
    module = Together([s for _, s in claimed_on(target)]).to(dtype).eval()
    inputs = inputs_of("as captured", dtype, target)
    _, result = written(module, inputs, target, convolutions=choice_of("ieee", target))
    assert result.text is not None
    text = result.text if target == "cpu" else emulated(result.text)
    return module, pipeline.bind_for_class(text, module)


def check(dtype: torch.dtype, target: str, call: str) -> None:
    module, fast = built(dtype, target)
    inputs = inputs_of(call, dtype, target)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        got, eager = fast(*inputs), module(*inputs)
        oracle = copy.deepcopy(module).double()(*(x.double() for x in inputs))
    wrong = []
    for (family, sample), g, e, t in zip(claimed_on(target), got, eager, oracle, strict=True):
        try:
            assert (g.shape, g.dtype) == (e.shape, e.dtype)
            check_values(g, e, t)
        except AssertionError as error:
            wrong.append(f"{family.name}, {sample.name}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_compute_the_same(dtype: torch.dtype, call: str) -> None:
    check(dtype, "cpu", call)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("target", TARGETS[1:])
def test_samples_compute_the_same_on_a_gpu(target: str, call: str) -> None:
    check(torch.float32, target, call)


# --- schedules ----------------------------------------------------------------------------------
@pytest.mark.parametrize("float32", ["ieee", "tf32"])
@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_every_schedule_of_a_family_is_written(family: Family, target: str, float32: str) -> None:
    back, device = pipeline.target_for(target, float32, choice_of(float32, target))
    # of a long row of places sums are of one product each
    wanted = [s for s in family.schedules(device) if float32 == "tf32" or s.kernels is not FLAT]
    taken = set()
    for sample in family.samples:
        if not is_claimed(family, sample, target):
            continue
        plan = plan_of(sample, device)
        assert plan is not None
        for schedule in wanted:
            again = tuned(plan, device, lambda rows, cols, depth, kind, s=schedule: s)
            for group in (g for g in again.groups if g.family == family.name):
                chosen = group.kernel.schedule
                if chosen == schedule:
                    taken.add(schedule)
                    mode = {"ieee": "Ieee", "tf32": "Tf32"}[float32]
                    text = back.text(group, "kernel").replace("rf::", "")
                    channels = getattr(group.kernel, "at_once", 0)
                    assert chosen.text(mode, channels).replace("rf::", "") in text
    assert taken == set(wanted)
