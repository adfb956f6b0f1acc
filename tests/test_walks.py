"""Graphs are walked without recursion, and each value once.

A function that calls itself for the inputs of a node visits a shared value once for each way to it,
2^n times in a chain of n factors x * f(x), and ends at Python's limit in a chain of a thousand.
`refold.ir.graph.within` walks instead.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold import pipeline
from refold.devices import DeviceModel
from refold.engine import optimize
from refold.ir import Graph, Output
from refold.planner import PlanPricer, make_plan
from refold.rules.term import Term, apply, linear, sum
from tests.engine.graphs import p, x

CPU = PlanPricer(DeviceModel.of("cpu"))

SOURCE = Path(__file__).resolve().parent.parent / "src" / "refold"
WALKING = ("ir", "capture", "rules", "engine", "plan", "codegen", "families", "planner", "emit")

# Recursion that is no walk over inputs, or goes a bounded way: one function of the ring, and why.
BOUNDED = {
    ("planner/lower.py", "_lower"): "each step takes axes away",
    ("planner/lower.py", "_softmax"): "the step gives it rows",
    ("codegen/text.py", "describe"): "the text is cut off at a depth",
    ("codegen/text.py", "name"): "what an expression names has been written before, by a stack",
    ("engine/explain.py", "short"): "the text is cut off at a depth",
    ("engine/normalise.py", "normal"): "one level for each rule in a row; `done` is the memo",
    ("rules/find.py", "finder"): "it reads a pattern, no graph",
    ("rules/find.py", "find"): "as deep as the pattern, not as the graph",
}


def recursions(text: str) -> Iterator[tuple[list[str], int]]:
    """Functions of a file that call each other in a ring and read `.inputs`, with a line."""
    tree = ast.parse(text)
    functions: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    calls = {name: set().union(*map(_called, found)) for name, found in functions.items()}
    for name, found in functions.items():
        ring = {n for n in _reached(name, calls) if name in _reached(n, calls)}
        bodies = [f for n in ring for f in functions[n]]
        reads = {n.attr for f in bodies for n in ast.walk(f) if isinstance(n, ast.Attribute)}
        if ring and "inputs" in reads:
            yield sorted(ring), found[0].lineno


def _called(function: ast.AST) -> set[str]:
    """Names of functions, and of methods of the same object, that a function calls."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                found.add(node.attr)
    return found


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    stack = [name]
    while stack:
        for inner in calls.get(stack.pop(), set()) & calls.keys():
            if inner not in found:
                found.add(inner)
                stack.append(inner)
    return found


FILES = sorted(p for folder in WALKING for p in (SOURCE / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_function_calls_itself_for_the_inputs_of_a_node(path):
    name = str(path.relative_to(SOURCE))
    allowed = {function for file, function in BOUNDED if file == name}
    found = [r for r in recursions(path.read_text()) if allowed.isdisjoint(r[0])]
    assert not found, f"{name}: walk with refold.ir.graph.within: {found}"


@pytest.mark.parametrize(
    "text",
    (
        "def f(n):\n    return all(f(i) for i in n.inputs)",
        "def f(n):\n    return g(n.inputs[0])\ndef g(n):\n    return f(n)",
        "class C:\n    def f(self, n):\n        return [self.f(i) for i in n.inputs]",
        "def f(root):\n    def g(n):\n        return map(g, n.inputs)\n    return g(root)",
    ),
)
def test_the_lint_finds(text):
    assert list(recursions(text))


def test_the_lint_leaves_other_recursion_alone():
    assert not list(recursions("def f(n):\n    return f(n - 1)\ndef g(n):\n    return n.inputs"))


def chain(count: int, step: Callable[[Term], Term]) -> Graph:
    """`step` applied `count` times, summed over the last two axes."""
    value = x(2, 3, 4)
    for _ in range(count):
        value = step(value)
    total = sum(value, (-2, -1))
    return Graph((Output(total.node, (2, 1, 1)),))


def tanh(value: Term) -> Term:
    return apply("tanh", value)


def shared(value: Term) -> Term:
    return value * tanh(value)


def calls(run: Callable[[], object]) -> int:
    """How many calls of Python functions `run` makes."""
    count = 0

    def tell(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tell)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_shared_factors_take_work_in_proportion():
    half, whole = (calls(lambda n=n: make_plan(chain(n, shared))) for n in (30, 60))
    assert whole < 2.5 * half, f"{half} calls for 30 factors, {whole} for 60"


def test_readers_of_one_value_take_work_in_proportion():
    def readers(count: int) -> Graph:
        value = x(8, 16)
        rows = [sum(tanh(value * float(k + 2)), (-1,)) for k in range(count)]
        return Graph(tuple(Output(r.node, (8, 1)) for r in rows))

    half, whole = (calls(lambda n=n: make_plan(readers(n))) for n in (30, 60))
    assert whole < 2.5 * half, f"{half} calls for 30 readers, {whole} for 60"


def test_the_search_for_shared_factors_takes_work_in_proportion():
    half, whole = (calls(lambda n=n: optimize(chain(n, shared), CPU)) for n in (30, 60))
    assert whole < 2.5 * half, f"{half} calls for 30 factors, {whole} for 60"


def test_the_search_among_maps_of_one_input_takes_work_in_proportion():
    def maps(count: int) -> Graph:
        made = [tanh(linear(x(8, 16), p(f"w{k}", 16, 16))) for k in range(count)]
        return Graph(tuple(Output(m.node, (8, 16)) for m in made))

    some, more = (calls(lambda n=n: optimize(maps(n), CPU)) for n in (8, 12))
    assert more < 2 * some, f"{some} calls for 8 maps, {more} for 12"


def test_the_search_in_a_long_sum_takes_work_in_proportion():
    def long_sum(count: int) -> Graph:
        value = x(8, 16)
        for k in range(count):
            value = value + linear(tanh(value), p(f"w{k}", 16, 16))
        return Graph((Output(value.node, (8, 16)),))

    half, whole = (calls(lambda n=n: optimize(long_sum(n), CPU)) for n in (20, 40))
    assert whole < 3 * half, f"{half} calls for 20 terms, {whole} for 40"


def test_a_thousand_ops_in_a_row_are_planned_and_written():
    target, device = pipeline.target_for("cpu")
    best = optimize(chain(1000, lambda value: tanh(value) + 1.0), CPU)
    plan = make_plan(best.graph, device=device)
    texts = [target.text(g, "kernel") for g in plan.groups]
    assert "".join(texts).count("tanh(") == 1000
