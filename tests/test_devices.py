"""Devices: one record each, from which targets, kernels and messages follow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from refold import pipeline
from refold.cli import main
from refold.conv_rules import by_rule
from refold.derive import Options
from refold.devices import (
    ANY,
    DEVICES,
    FEATURES,
    Device,
    DeviceModel,
    detect,
    device_at_hand,
    is_at_hand,
    table,
)
from refold.emit.cuda import compile_emitted, nvcc
from refold.families import FAMILIES
from refold.families.family import Family
from refold.ir import Graph, Output, leaf, make
from refold.planner import make_plan
from refold.schedule import KERNELS, MMA_SYNC, WGMMA, kernels_of

GPUS = [d for d in DEVICES.values() if d.toolchain == "cuda"]


def name(device: Device) -> str:
    return device.name


def test_the_devices_that_there_are() -> None:
    names = {"cpu", *(f"cuda:sm_{n}" for n in (80, 86, 89, 90, 100, 120))}
    assert set(DEVICES) == names
    assert DEVICES["cuda:sm_100"].capability == (10, 0)
    assert DEVICES["cuda:sm_120"].capability == (12, 0)


@pytest.mark.parametrize("device", DEVICES.values(), ids=name)
def test_a_device_has_a_target_of_its_name(device: Device) -> None:
    for accuracy in ("ieee", "tf32"):
        target, model = pipeline.target_for(device.name, accuracy)
        assert target.name == device.name == model.name
        assert target.device == ("cuda" if device.toolchain == "cuda" else "cpu")


@pytest.mark.parametrize("device", DEVICES.values(), ids=name)
def test_rates_are_plausible(device: Device) -> None:
    model = DeviceModel(device)
    assert 1e9 < model.bandwidth < model.plain_flops <= model.product_flops < 1e16
    half = replace(model, dtype=torch.float16)
    assert half.product_flops >= model.product_flops
    assert replace(model, dtype=torch.int64).product_flops == model.product_flops


@pytest.mark.parametrize("device", GPUS, ids=name)
def test_kernels_of_products_follow_from_features(device: Device) -> None:
    kernels = kernels_of(device.features)
    assert kernels.requires <= device.features <= FEATURES
    assert kernels is (WGMMA if "wgmma" in device.features else MMA_SYNC)
    x = leaf("input", (512, 4096), torch.float32, name="x")
    w = leaf("param", (256, 4096), torch.float32, name="w")
    product = Graph((Output(make("linear", x, w), (512, 256)),))
    (group,) = make_plan(product, device=DeviceModel(device)).groups
    assert group.kernel is not None and group.kernel.schedule.kernels is kernels


def test_every_feature_that_kernels_require_is_known() -> None:
    assert set().union(*(k.requires for k in KERNELS)) <= FEATURES


def test_a_gpu_without_tensor_cores_is_refused() -> None:
    with pytest.raises(ValueError, match=r"need \['cp_async', 'mma_sync'\] at least, got \[\]"):
        kernels_of(frozenset())


def test_badly_declared_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"any: expected features of FEATURES, got \['warp'\]"):
        replace(ANY, features=frozenset({"warp"}))
    with pytest.raises(ValueError, match="any: a GPU needs its compute capability"):
        replace(ANY, toolchain="cuda")


# capability -> the target that is taken for it
AT_HAND = {
    None: "cpu",
    (7, 5): "cpu",
    (8, 0): "cuda:sm_80",
    (8, 6): "cuda:sm_80",
    (8, 9): "cuda:sm_80",
    (9, 0): "cuda:sm_90",
    (10, 0): "cuda:sm_80",
    (12, 0): "cuda:sm_80",
}


@pytest.mark.parametrize("capability", AT_HAND)
def test_what_is_at_hand(capability, monkeypatch) -> None:
    """Kernels that were never run on any GPU are taken on request only."""
    monkeypatch.setattr(detect, "capability_at_hand", lambda: capability)
    assert device_at_hand().name == AT_HAND[capability]
    able = {d.name for d in DEVICES.values() if is_at_hand(d)}
    assert "cpu" in able
    assert ("cuda:sm_90" in able) == (capability == (9, 0)), "sm_90a runs on no other"
    assert ("cuda:sm_80" in able) == (capability is not None and capability >= (8, 0))


@pytest.mark.parametrize("device", DEVICES.values(), ids=name)
def test_what_was_never_run_says_so(device: Device) -> None:
    never = device.name in ("cuda:sm_86", "cuda:sm_89", "cuda:sm_100", "cuda:sm_120")
    assert (device.warning is not None) == never
    assert not never or "never run" in str(device.warning)


def test_the_command_says_so(capsys, tmp_path) -> None:
    reference = tmp_path / "ref.py"
    reference.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x) + 1\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    assert main(["explain", str(reference), "--target", "cuda:sm_100"]) == 0
    assert "kernels for cuda:sm_100 compile, but were never run" in capsys.readouterr().err


def test_accuracy_and_dtype_are_no_other_device() -> None:
    model = DeviceModel.of("cuda:sm_90")
    tf32 = replace(model, float32="tf32")
    assert model.batches is not None and tf32.batches is None
    assert model.quantizes is None and tf32.quantizes == 64 << 20
    assert model.exponentials and not replace(model, dtype=torch.bfloat16).exponentials
    assert replace(DeviceModel.of("cuda:sm_80"), float32="tf32").quantizes is None


class Product(nn.Module):
    """Deep enough for tensor cores, and small enough to compile soon."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


@cache
def emitted_for(name: str) -> str:
    options = Options(measure=False, accuracy=False)
    back, model = pipeline.target_for(name, "ieee")
    inputs = [torch.randn(64, 256)]
    text = pipeline.run(Product(), inputs, "# Model is bound.", "M", back, model, options).text
    assert text is not None
    return text


@pytest.mark.parametrize("device", GPUS, ids=name)
def test_an_emitted_file_says_what_it_runs_on(device: Device) -> None:
    text = emitted_for(device.name)
    assert all(flag in text for flag in device.flags)
    assert f"have {'<' if device.runs_later else '!='} {device.capability}" in text
    major, minor = device.capability or (0, 0)
    assert f"the kernels are for {major}.{minor}{' or later' if device.runs_later else ''}" in text


NEVER_RUN = [d.name for d in GPUS if d.warning is not None]


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("which", NEVER_RUN)
def test_products_compile_from_the_headers_of_ampere(which: str) -> None:
    text = emitted_for(which)
    assert "Schedules = BySize<" in text and "Generic<Ieee" in text
    assert compile_emitted(text) is None


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize("which", NEVER_RUN)
def test_each_family_compiles(which: str, family: Family) -> None:
    """For each GPU on which no kernel was ever run: then this is all that is known. A family that
    has no kernel for one leaves its samples to PyTorch there."""
    back, model = pipeline.target_for(which, "ieee", by_rule("ieee"))
    known = ("", model.device.toolchain, *model.device.features)
    of_all = [s for s in family.samples if not s.refused]
    sample = next((s for s in of_all if s.only in known), of_all[0])
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(
        sample.module(), sample.inputs(), "# Model is bound.", "M", back, model, options
    )
    if sample.only not in known:
        assert result.text is None and all(s.only not in known for s in of_all)
        return
    assert result.text is not None, result.reasons
    (plan,) = {id(p): p for p in (d.mode.plan for d in result.derivations) if p}.values()
    assert family.name in {group.family for group in plan.groups}
    assert compile_emitted(result.text) is None


def test_a_file_that_does_not_compile_is_told() -> None:
    assert compile_emitted(emitted_for("cuda:sm_89").replace("struct Matmul", "struckt Matmul"))


def test_products_of_bfloat16_are_the_kernels_where_the_processor_has_none(monkeypatch):
    """PyTorch's calls take several times as long there as those of float32."""
    products = DEVICES["cpu"].products
    for there in (False, True):
        monkeypatch.setattr(table, "multiplies_bfloat16", lambda there=there: there)
        assert products(torch.bfloat16, torch.bfloat16, False) is not there
        assert products(torch.float16, torch.float16, False)
