"""Values and patterns in mathematical notation: MathML, which browsers set without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape

from refold.ir import OPS, Kind, Node
from refold.rules.term import App, Num, Term, Value, Var

Maths = Markup
# how tightly an expression binds: what stands in a product or in front of a transpose may need
# parentheses
_SUM, _PRODUCT, _PREFIX, _ATOM = range(4)
_SIGNS = {"sum": "∑", "prod": "∏"}
_SHOWN = ("axes", "axis", "size", "shape", "length", "start", "order")
_Set = tuple[Markup, int]


def value(node: Node, depth: int = 4) -> Maths:
    """A value of a graph, `depth` ops deep; deeper values are dots."""
    return _math(_of_node(node, depth)[0])


def term(pattern: Term) -> Maths:
    """A side of a rule."""
    return _math(_of_term(pattern)[0])


def variable(name: str) -> Term:
    """A variable of a rule, to be put into its sides."""
    return Var(name)


def equation(left: Maths, right: Maths) -> Markup:
    """Two sides, of `value` or `term`: where they do not fit a line, the second stands below."""
    equals = _math(Markup("<mo>=</mo>") + _inside(right))
    return alone(left) + alone(equals)


def alone(maths: Maths) -> Markup:
    """A formula as a part of a line."""
    return Markup('<span tabindex="0">{}</span>').format(maths)


def _math(inner: Markup) -> Markup:
    return Markup("<math>{}</math>").format(inner)


def _inside(maths: Markup) -> Markup:
    return Markup(str(maths).removeprefix("<math>").removesuffix("</math>"))


def _of_term(t: Any) -> _Set:
    if isinstance(t, Value):
        return _of_node(t.of, 3)
    if isinstance(t, Var):
        return _identifier(t.name), _ATOM
    if isinstance(t, Num):
        return _number(t.value)
    if isinstance(t, App):
        attrs = {k: v.name if isinstance(v, Var) else v for k, v in t.attrs}
        return _applied(t.op, [lambda a=a: _of_term(a) for a in t.args], attrs)  # type: ignore[misc]
    return _identifier(str(t)), _ATOM


def _of_node(node: Node, depth: int) -> _Set:
    if node.row.is_named:
        return _identifier(str(node["name"])), _ATOM
    if node.op == "scalar":
        return _number(node["value"])
    if depth == 0:
        return Markup("<mo>…</mo>"), _ATOM
    inner = [lambda i=i: _of_node(i, depth - 1) for i in node.inputs]
    op, attrs = node.op, dict(node.attrs)
    if op == "permute" and _swaps_last(attrs.get("order")):
        op = "transpose"
    return _applied(op, inner, attrs)  # type: ignore[arg-type]


def _swaps_last(order: Any) -> bool:
    rank = len(order) if isinstance(order, tuple) else 0
    return rank > 1 and order == (*range(rank - 2), rank - 1, rank - 2)


def _applied(op: str, args: list[Callable[[], _Set]], attrs: dict[str, Any]) -> _Set:
    """An op of arguments, which are set when they are asked for."""

    def at(i: int, least: int = _SUM) -> Markup:
        inner, binds = args[i]()
        return inner if binds >= least else _parenthesised(inner)

    if op in ("add", "sub") and len(args) == 2:
        sign = "+" if op == "add" else "−"
        right = at(1, _SUM if op == "add" else _PRODUCT)
        return Markup("{}<mo>{}</mo>{}").format(at(0), sign, right), _SUM
    if op == "mul" and len(args) == 2:
        return Markup("{}<mo>⊙</mo>{}").format(at(0, _PRODUCT), at(1, _PRODUCT)), _PRODUCT
    if op == "div" and len(args) == 2:
        return Markup("<mfrac><mrow>{}</mrow><mrow>{}</mrow></mfrac>").format(at(0), at(1)), _ATOM
    if op == "neg":
        return Markup("<mo>−</mo>{}").format(at(0, _PRODUCT)), _SUM
    if op == "linear" and len(args) == 2:
        weight = Markup("{}<mi>ᵀ</mi>").format(at(1, _ATOM))
        return Markup("{}<mo>&#x22C5;</mo>{}").format(at(0, _PRODUCT), weight), _PRODUCT
    if op == "transpose":
        return Markup("{}<mi>ᵀ</mi>").format(at(0, _ATOM)), _PREFIX
    if op == "sqrt":
        return Markup("<msqrt>{}</msqrt>").format(at(0)), _ATOM
    if op == "rsqrt":
        return Markup("<mfrac><mn>1</mn><msqrt>{}</msqrt></mfrac>").format(at(0)), _ATOM
    if op == "reciprocal":
        return Markup("<mfrac><mn>1</mn><mrow>{}</mrow></mfrac>").format(at(0)), _ATOM
    if op == "exp":
        return Markup("<msup><mi>e</mi><mrow>{}</mrow></msup>").format(at(0)), _ATOM
    if op == "square":
        return Markup("<msup><mrow>{}</mrow><mn>2</mn></msup>").format(at(0, _ATOM)), _ATOM
    if op == "abs":
        return Markup("<mo>|</mo>{}<mo>|</mo>").format(at(0)), _ATOM
    if op in OPS and OPS[op].kind is Kind.REDUCE and len(args) == 1:
        sign = Markup("<munder><mo>{}</mo><mrow>{}</mrow></munder>").format(
            _SIGNS.get(op, op), _axes(attrs.get("axes"))
        )
        return Markup("{}{}").format(sign, at(0, _PREFIX)), _PREFIX
    inner = Markup("<mo>,</mo>").join(at(i) for i in range(len(args)))
    shown = [_attribute(k, v) for k, v in attrs.items() if k in _SHOWN]
    name = _identifier(op)
    if shown:
        under = Markup("<mo>,</mo>").join(shown)
        name = Markup("<msub>{}<mrow>{}</mrow></msub>").format(name, under)
    return Markup("{}{}").format(name, _parenthesised(inner)), _ATOM


def _parenthesised(inner: Markup) -> Markup:
    tall = "<mfrac" in inner
    left, right = (
        Markup("<mo>{}</mo>" if tall else '<mo stretchy="false">{}</mo>').format(p) for p in "()"
    )
    return Markup("<mrow>{}{}{}</mrow>").format(left, inner, right)


def _axes(axes: Any) -> Markup:
    if not isinstance(axes, tuple):
        return _identifier(str(axes))
    return Markup("<mo>,</mo>").join(_number(a)[0] for a in axes)


def _attribute(name: str, found: Any) -> Markup:
    if isinstance(found, tuple):
        while name == "shape" and len(found) > 1 and found[0] == 1:
            found = found[1:]  # ranks are padded with ones
        return Markup("<mtext>{}</mtext>").format(" × ".join(map(str, found)))
    return Markup("<mtext>{}</mtext>").format(str(found))


def _number(number: Any) -> _Set:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return _identifier(str(number)), _ATOM
    text = f"{number:g}"
    if text.startswith("-"):
        return Markup("<mo>−</mo><mn>{}</mn>").format(text[1:]), _SUM
    return Markup("<mn>{}</mn>").format(text), _ATOM


def _identifier(name: str) -> Markup:
    """Letters are italic, words upright; `linear.weight` stays one word."""
    variant = "" if len(name) == 1 else ' mathvariant="normal"'
    return Markup(f"<mi{variant}>{escape(name)}</mi>")
