"""The net of digests: equal in every run, and torn by any change of a text."""

from __future__ import annotations

import torch

import net
from refold.codegen.headers import header


def test_a_text_is_the_same_in_every_run() -> None:
    columns = net.COLUMNS[2:4]
    first, again = (
        [net.line(what, text) for what, text, _ in net.texts(["Mlp"], columns)] for _ in range(2)
    )
    assert first == again
    assert len({*first}) == len(columns)
    assert [text.rsplit(" ", 1)[0] for text in first] == [
        "Mlp cuda:sm_80 tf32 float32",
        "Mlp cuda:sm_90 ieee float32",
    ]


def test_headers_and_the_runtime_are_named() -> None:
    (_, text, prices), *_ = net.texts(["Mlp"], net.COLUMNS[:1])
    assert len(prices) == 1 and float(prices[0].split()[1]) > 0
    assert "// <cpu/matmul.h>" in text and "# <runtime>" in text
    assert len(header("cpu/matmul.h").splitlines()[5]) > 10
    assert header("cpu/matmul.h").splitlines()[5] not in text
    assert '_REFOLD_NAME = "refold_cpu"' in text


def test_a_model_that_is_kept_says_why() -> None:
    assert net.line("A cpu", "kept: nothing to fuse") == "A cpu kept: nothing to fuse"


def test_any_change_is_another_digest() -> None:
    assert net.line("A", "one") != net.line("A", "two")


def test_a_higher_price_is_told() -> None:
    old = ["A cpu ieee float32 both 2.000000 3", "B cpu ieee float32 eval 1.000000 1"]
    same = [*old, "C cpu ieee float32 both 5.000000 1"]
    assert net.raised(old, same) == []
    assert net.raised(old, ["A cpu ieee float32 both 1.500000 4", old[1]]) == []
    higher = "B cpu ieee float32 eval 1.100000 1"
    assert net.raised(old, [old[0], higher]) == [f"{higher}, before 1.000000"]


def test_every_kind_of_float_is_in_a_column() -> None:
    assert {dtype for _, _, dtype in net.COLUMNS} == {torch.float32, torch.float16, torch.bfloat16}
