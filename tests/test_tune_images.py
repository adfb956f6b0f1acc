"""Convolutions by timing: what is kept, what is followed, and what is out because it is wrong."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from refold import optimize, pipeline, tune_images
from refold.convolve import IMPLICIT, ON_CPU, STRIPS, Algorithm, Convolution, every_schedule
from refold.derive import Options, derive
from refold.devices import DEVICES
from refold.emit.module import Emission, emit
from refold.emit.target import Target
from refold.flat import FLAT
from refold.pipeline import OptimizeError, bind_for_class
from refold.tune_images import (
    Sides,
    TunedImages,
    example_of,
    largest,
    likely,
    measured,
    name_of,
)
from tests.emulator.module import emulated

derive_file = sys.modules["refold.derive"]
SIZES = Convolution(2, 8, 24, 1, (6, 7), (6, 7), (3, 3), (1, 1), (1, 1), (1, 1))
BROAD, SLIM = (w for w in every_schedule() if w.kernels is IMPLICIT)
HOPPER = DEVICES["cuda:sm_90"].features


@pytest.fixture()
def table(tmp_path, monkeypatch) -> TunedImages:
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path / "deep"))
    return TunedImages("a device", "9", "tf32")


def test_the_faster_side_is_kept_and_followed(table: TunedImages) -> None:
    ours = Algorithm(BROAD, "tf32")
    calls: list[Convolution] = []

    def measure(c: Convolution, allowed: str) -> Sides:
        calls.append(c)
        return Sides("tf32", {None: 2e-5, ours: 1e-5 if c == SIZES else 1.99e-5})

    other = replace(SIZES, images=3)
    assert table(SIZES) is None and not table.knows(SIZES), "unknown is the library's"
    table.fill([SIZES, SIZES, other], measure)
    table.fill([SIZES, other], measure)
    assert calls == [SIZES, other], "each once"
    assert table(SIZES) == ours
    assert table(other) is None and table.knows(other), "as fast within noise is the library's"
    assert TunedImages("another device", "9", "tf32")(SIZES) is None
    assert TunedImages("a device", "10", "tf32")(SIZES) is None, "another library"
    assert TunedImages("a device", "9", "ieee")(SIZES) is None, "another flag"


def test_a_broken_row_is_as_good_as_none(table: TunedImages) -> None:
    table.path.parent.mkdir()
    good = {"way": "implicit mma_sync slim", "kind": "ieee"}
    strips = {"way": "strips wgmma slim"}
    unknown = {"way": "strips wgmma vast"}
    for row in (5, {}, strips, good | {"way": []}, good | {"kind": "fp8"}, good | unknown):
        table.path.write_text(json.dumps({table.key: {name_of(SIZES): row}}))
        assert table(SIZES) is None
    table.path.write_text(json.dumps({table.key: {name_of(SIZES): good}}))
    assert table(SIZES) == Algorithm(SLIM, "ieee")
    table.path.write_text(json.dumps({table.key: {name_of(SIZES): strips | {"kind": "tf32"}}}))
    (found,) = (w for w in every_schedule(HOPPER) if w.kernels is STRIPS and w.tile == "slim")
    assert table(SIZES) == Algorithm(found, "tf32")


def test_names_tell_sizes_apart() -> None:
    others = [
        replace(SIZES, **{name: value})
        for name, value in (
            *(("images", 3), ("channels", 16), ("features", 48), ("groups", 2), ("sizes", (7, 6))),
            *(("kernel", (3, 2)), ("strides", (1, 2)), ("paddings", (0, 1)), ("dilations", (2, 1))),
        )
    ]
    assert len({name_of(c) for c in (SIZES, *others)}) == 10


def build_of(target: Target, device, change: Callable[[str], str]) -> tune_images.Build:
    """What `pipeline.timed_convolutions` builds, for the emulator; own kernels with a change."""

    def build(module: nn.Module, x: torch.Tensor, algorithm: Algorithm | None) -> nn.Module:
        one = replace(
            device, convolutions=None if algorithm is None else lambda convolution: algorithm
        )
        (found,) = derive(module, [x], one, Options(accuracy=False))
        text = emit(Emission(module, "# Model is Sequential.", (found.mode,), "x"), target)
        return bind_for_class(emulated(text if algorithm is None else change(text)), module)

    return build


@pytest.mark.parametrize("wrong", [False, True])
def test_a_way_that_is_not_accurate_is_out(wrong: bool) -> None:
    target, device = pipeline.target_for("cuda:sm_80", "ieee")

    def change(text: str) -> str:
        lines = {
            "unscale[row] = power_of_two(-e);": "unscale[row] = power_of_two(1 - e);",
            "hi0 = tf32_of(b0), hi1 = tf32_of(b1);": "hi0 = 2 * tf32_of(b0), hi1 = tf32_of(b1);",
        }
        line = [n for n in lines if n in text][-1]
        return text.replace(line, lines[line]) if wrong else text

    torch.manual_seed(0)
    features = device.device.features
    sides = measured(SIZES, "tf32", features, build_of(target, device, change), "cpu")
    assert sides.kind == "ieee", "a processor's library computes in fp32, whatever the flag"
    ours = {None, *likely(SIZES, "ieee", features)}
    assert Algorithm(SLIM, "ieee") in ours and len(ours) == 3
    assert set(sides.seconds) == ({None} if wrong else ours)
    assert wrong is False or sides.best is None


@pytest.mark.parametrize(("channels", "kind"), [(8, "ieee"), (64, "tf32")])
def test_of_few_products_a_library_in_tf32_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, channels: int, kind: str
) -> None:
    """At other sizes it computes them in fp32."""
    monkeypatch.setattr(tune_images, "_error", lambda *given: 3e-4)
    monkeypatch.setattr(tune_images, "_seconds", lambda *given: 1.0)
    monkeypatch.setattr(
        tune_images, "side_by_side", lambda build, choices, n: [None] * len(choices)
    )
    c = Convolution(2, channels, 24, 1, (9, 8), (7, 6), (3, 3), (1, 1), (0, 0), (1, 1))
    sides = measured(c, "tf32", HOPPER, lambda *given: pytest.fail("nothing is built"), "cpu")
    assert sides.kind == kind


def test_each_kernel_has_its_likely_tile() -> None:
    for kind in ("ieee", "tf32"):
        names = [w.schedule.kernels.name for w in likely(SIZES, kind, HOPPER)]
        assert sorted(names) == [
            "flat wgmma",
            "implicit mma_sync",
            "patches mma_sync",
            "strips wgmma",
        ]
        others = (w for w in likely(SIZES, kind, HOPPER) if w.schedule.kernels is not FLAT)
        assert {w.schedule.tile for w in others} == {"slim", "features64"}
    many = replace(SIZES, images=512, sizes=(60, 70), made=(60, 70))  # of one wave both are level
    (tile,) = (w.schedule.tile for w in likely(many, "tf32", HOPPER) if w.schedule.kernels is FLAT)
    assert tile == "slim"


def test_an_example_has_the_sizes() -> None:
    for c in (SIZES, Convolution(1, 4, 18, 2, (9,), (4,), (3,), (2,), (0,), (1,))):
        module, x = example_of(c, "cpu")
        assert module(x).shape == (c.images, c.features, *c.made)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 24, 3, padding=1)
        self.second = nn.Conv2d(24, 40, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.tanh(self.first(x))))


@pytest.mark.parametrize("asked", ["timed", "library", "own", "auto"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_model_gets_what_was_timed(
    table: TunedImages, monkeypatch: pytest.MonkeyPatch, asked: str, fails: bool
) -> None:
    timed: list[Convolution] = []

    def measure(
        c: Convolution,
        allowed: str,
        features: frozenset[str],
        build: tune_images.Build,
        device: str,
    ) -> Sides:
        timed.append(c)
        if fails:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return Sides(
            "ieee", {None: 2e-5, Algorithm(BROAD, "ieee"): 1e-5 if c.features == 24 else 1.0}
        )

    monkeypatch.setattr(pipeline, "measured", measure)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a device")
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    said: list[str] = []
    x = torch.randn(2, 8, 6, 7)
    options = Options(measure=False, accuracy=False, tune=True, convolutions=asked)
    result = pipeline.run(Model().eval(), [x], "#", "M", target, device, options, said.append)
    assert result.text is not None
    own = result.text.count("rf::convolution<rf::GenericConvolution<rf::Ieee, rf::")
    by_timing = asked in ("timed", "auto")
    assert own == (1 - fails if by_timing else {"library": 0, "own": 2}[asked])
    assert (len(timed) > 0) is by_timing
    assert any("timing failed" in s for s in said) is (by_timing and fails)
    if by_timing and not fails:
        assert [c.features for c in timed] == [24, 40]
        assert "torch.nn.functional.conv2d(" in result.text


def test_no_other_word_is_taken() -> None:
    with pytest.raises(OptimizeError, match="auto, library, own, timed, came 'ours'"):
        optimize(nn.Conv2d(3, 16, 3), torch.randn(1, 3, 8, 8), convolutions="ours")


# --- on a CPU -------------------------------------------------------------------------------------
def own_on_the_cpu(module: nn.Module, x: torch.Tensor, **options: Any) -> int:
    """How many convolutions of a file for the CPU are our kernels'."""
    target, device = pipeline.target_for("cpu")
    given = Options(measure=False, accuracy=False, **options)
    text = pipeline.run(module.eval(), [x], "#", "M", target, device, given).text
    return 0 if text is None else text.count("rf::convolution(body")


@pytest.mark.parametrize("faster", [False, True])
def test_a_cpu_takes_the_faster_and_knows_it_the_next_time(
    table: TunedImages, monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    timed: list[Convolution] = []

    def measure(c: Convolution, *rest: Any) -> Sides:
        timed.append(c)
        return Sides("ieee", {None: 2e-5, ON_CPU: 1e-5 if faster else 2e-5})

    monkeypatch.setattr(pipeline, "measured", measure)
    x = torch.randn(2, 8, 6, 7)
    for _ in range(2):
        assert own_on_the_cpu(Model(), x, tune=True) == (2 if faster else 0)
        assert [c.features for c in timed] == [24, 40]
    assert own_on_the_cpu(Model(), x, tune=True, convolutions="library") == 0
    assert own_on_the_cpu(Model(), x, convolutions="own") == 2


@pytest.mark.parametrize("faster", [False, True])
def test_timing_captures_nothing_again_and_derives_again_only_what_it_changes(
    table: TunedImages, monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    def measure(c: Convolution, *rest: Any) -> Sides:
        return Sides("ieee", {None: 2e-5, ON_CPU: 1e-5 if faster else 2e-5})

    calls: list[str] = []
    for name in ("capture", "optimize"):
        real = getattr(derive_file, name)

        def noted(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            calls.append(name)
            return real(*args, **more)

        monkeypatch.setattr(derive_file, name, noted)
    monkeypatch.setattr(pipeline, "measured", measure)
    x = torch.randn(2, 8, 6, 7)
    assert own_on_the_cpu(Model(), x) == 0
    alone = Counter(calls)
    assert own_on_the_cpu(Model(), x, tune=True) == (2 if faster else 0)
    timed = Counter(calls) - alone
    assert timed["capture"] == alone["capture"]
    assert timed["optimize"] == (2 if faster else 1) * alone["optimize"]


def test_without_timing_a_rule_decides_on_a_cpu() -> None:
    def own(module: nn.Module, *sizes: int) -> int:
        return own_on_the_cpu(nn.Sequential(module, nn.Sigmoid()), torch.randn(sizes))

    assert own(nn.Conv2d(24, 24, 3, groups=24), 1, 24, 20, 20) == 1
    assert own(nn.Conv2d(24, 24, 3, groups=24), 1, 24, 9, 9) == 0
    assert own(nn.Conv2d(8, 24, 3), 1, 8, 32, 32) == own(nn.Conv1d(64, 24, 5), 1, 64, 99) == 1
    assert own(nn.Conv2d(8, 24, 3), 1, 8, 20, 20) == own(nn.Conv2d(64, 24, 3), 1, 64, 32, 32) == 0
    assert own(nn.Conv2d(8, 24, 3, 2), 1, 8, 80, 80) == 0
    assert own(nn.ConvTranspose2d(64, 24, 3, 2), 1, 64, 9, 9) == 1
    assert own(nn.ConvTranspose2d(64, 24, 3), 1, 64, 9, 9) == 0


def test_only_the_largest_are_timed_on_a_cpu() -> None:
    many = [replace(SIZES, features=8 * n) for n in range(1, 20)]
    assert largest([*many, *many]) == many[:-9:-1]


def test_a_cpu_is_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Told(nn.Module):
        def __init__(self, name: str, module: nn.Module) -> None:
            super().__init__()
            self.name, self.module = name, module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(self.name)
            return self.module(x)

    def build(module: nn.Module, x: torch.Tensor, algorithm: Algorithm | None) -> nn.Module:
        return Told("library" if algorithm is None else "own", module)

    monkeypatch.setattr(tune_images, "_SECONDS", 0.0)
    c = replace(SIZES, output_padding=(1, 0), strides=(2, 1), made=(14, 7))
    sides = measured(c, "ieee", frozenset(), build, "cpu")
    assert set(sides.seconds) == {None, ON_CPU} and sides.kind == "ieee"
    assert calls[-10:] == ["library", "own"] * 5
