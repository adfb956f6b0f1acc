"""Pages of `explain`, `judge` and `suite`: one file each, which says what was done and why."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import pages
from refold import cli
from refold.devices import DeviceModel
from refold.engine import untouched
from refold.ir import Graph, Output
from refold.ir.node import leaf, make
from refold.judge.ask.look import LARGEST, bars
from refold.planner import PlanPricer
from refold.report.pages import drawing, mathml
from refold.report.pages.derivation import general, proof_of
from refold.report.pages.reasons import guard_text, reasons
from refold.report.pages.roofline import Dot, roofline
from refold.rules import RULES

ELSEWHERE = r"<script|<link|<iframe|<img|@import|url\(|https?://|\bon\w+="


@pytest.mark.parametrize("name", sorted(pages.PAGES))
def test_a_page_is_one_file_and_needs_nothing(tmp_path, name):
    text = pages.PAGES[name](tmp_path)
    assert len(text.encode()) < LARGEST
    assert re.findall(ELSEWHERE, text) == []
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "prefers-color-scheme: dark" in text
    if name == "explain":
        for words in (
            "As captured",
            "As rewritten",
            "The sum of output features is one product",
            "both sides agree in float64 on 25 random instances",
            "<math>",
            "49 rules speak of this op",
            "Roofline of 1 kernel",
            "of parameters",
            "the graph as rewritten",
            "Not measured for this page",
        ):
            assert words in text, words


def test_where_nothing_can_be_written_nothing_is_done(tmp_path, capsys):
    path = pages.written(tmp_path, pages.IMAGES)
    assert cli.main(["explain", str(path), "--html", str(tmp_path / "no" / "x.html")]) == 2
    assert "does not exist; create it first" in capsys.readouterr().err
    assert cli.main(["explain", str(path), "--measure"]) == 2
    assert "--measure is for --html" in capsys.readouterr().err


def test_names_are_escaped(tmp_path):
    rows = pages.rows(1)
    rows[0]["task"] = rows[0]["reason"] = "<b onclick=x>&"
    text = pages.suite_page(rows, 1)
    assert "<b onclick" not in text and "&lt;b onclick=x&gt;&amp;" in text


def result_of(node):
    return Output(node, node.shape)


def value(name="x", *shape):
    return leaf("input", shape or (4, 8), torch.float32, name=name, index=0)


def weight(name="w", *shape):
    return leaf("param", shape or (16, 8), torch.float32, name=name)


def test_values_are_set_as_mathematics():
    x, w = value(), weight()
    y = make("sum", make("add", make("linear", x, w), weight("b", 16)), axes=(-1,))
    text = mathml.value(y)
    assert "<mo>∑</mo><mrow><mo>−</mo><mn>1</mn></mrow>" in text
    assert "<mi>w</mi><mi>ᵀ</mi>" in text and text.count('<mo stretchy="false">(') == 1
    assert str(mathml.value(y, 1)).count("…") == 1
    assert "&lt;" in mathml.value(value("a<b"))


def test_every_rule_can_be_set():
    for rule in RULES:
        text = str(general(rule))
        assert text.count("<math>") == text.count("</math>") > 0


def test_a_proof_is_run_for_the_page():
    rule = next(r for r in RULES if r.name == "sum-through-linear")
    assert proof_of(rule).startswith("run for this page: both sides agree")


def test_boxes_lie_beside_each_other():
    x = value()
    layer = [make("relu", make("mul", x, weight(f"p{i}", 8))) for i in range(9)]
    while len(layer) > 1:
        layer = [make("add", a, b) for a, b in itertools.pairwise(layer)][::2]
    graph = Graph((result_of(layer[0]),))
    drawn = drawing.draw(graph, {}, {}, "a graph")
    found = re.findall(r'x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)" rx', drawn.svg)
    boxes = [tuple(map(float, numbers)) for numbers in found]
    assert drawn.shown == drawn.ops and len(boxes) > 20
    for i, (x0, y0, w0, h0) in enumerate(boxes):
        for x1, y1, w1, h1 in boxes[i + 1 :]:
            assert x0 + w0 <= x1 or x1 + w1 <= x0 or y0 + h0 <= y1 or y1 + h1 <= y0


def test_what_stays_says_why():
    x = value()
    kept = make("softmax", x, axis=-1)
    graph = Graph((result_of(make("sum", make("linear", kept, weight()), axes=(-2,))),))
    left = untouched(graph, PlanPricer(DeviceModel.of("cpu")))
    said = {r.op: r for r in reasons(left)}
    rule, answer = said["softmax"].answers[0]
    assert rule == "softmax-of-one"
    assert answer.startswith("its guard said no: is_unit_along(x, (axis,))")
    assert {o.node.op for o in left} == {"softmax", "linear", "sum"}


def test_a_guard_is_told_as_it_is_written():
    rule = next(r for r in RULES if r.name == "softmax-of-one")
    assert guard_text(rule.where).startswith("is_unit_along(x, (axis,)) (is_unit_along: Is `s`")


def test_a_roofline_shows_each_kernel_below_the_roof():
    dots = [Dot(i, f"k{i}", 10.0**i, 1e6, 1e-3) for i in range(3, 9)]
    text = roofline(dots, DeviceModel.of("cpu"))
    assert text.count("<circle") == 6 and "86 GFLOP/s, 14 GB/s" in text
    assert roofline([Dot(1, "k", 0.0, 1.0, 1.0)], DeviceModel.of("cpu")) == ""


def test_bars_stand_in_their_track():
    made = bars([("a", 1e-9, 1.0, 1e9, "", False), ("b", 1.0, 1.0, 1.0, "", True)], 1.0)
    for bar in made:
        assert 0 <= bar.low <= bar.middle <= bar.high <= 99
    assert made[1].middle == pytest.approx(made[1].mark)
    assert bars([]) == []
