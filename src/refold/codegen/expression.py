"""C++ expressions put into one another: which parentheses they need.

The tree stays as it was: `a - (b + c)` keeps its parentheses, `(a - b) + c` needs none, because C++
reads it so. Each operation rounds as it did in a statement of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BINARY = re.compile(r"\{0\} ([-+*/]) \{1\}")
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}
ATOM = 3  # a name, a number, a call


@dataclass(frozen=True)
class Text:
    """C++ of a value. strength: how strongly its outermost operator binds: 0 for the weakest."""

    code: str
    strength: int = ATOM

    @property
    def is_name(self) -> bool:
        """Whether it may stand in several places: nothing is computed or read twice."""
        return re.fullmatch(r"\(?-?[\w.\[\]]+(-\d+f)?\)?", self.code) is not None

    def at_least(self, strength: int) -> str:
        return self.code if self.strength >= strength else f"({self.code})"


def known(code: str) -> Text:
    """The text of a value that is at hand: a name or a call, unless there are operators in it."""
    return Text(code, ATOM if _is_call(code) or " " not in code else 0)


def uses(template: str, place: int) -> int:
    """How often an op's text reads its operand."""
    return template.count(f"{{{place}}}")


def filled(template: str, operands: Sequence[Text], literals: Mapping[str, str]) -> Text:
    """An op's text with its operands and attributes in their places."""
    binary = _BINARY.fullmatch(template)
    if binary:
        strength = _STRENGTH[binary[1]]
        left, right = operands[0].at_least(strength), operands[1].at_least(strength + 1)
        return Text(f"{left} {binary[1]} {right}", strength)
    places = (_parenthesised(template, i, o) for i, o in enumerate(operands))
    code = template.format(*places, **literals)
    if template == "-{0}":
        return Text(code, _STRENGTH["-"])
    return Text(code, ATOM if _is_call(code) else 0)


def _parenthesised(template: str, place: int, operand: Text) -> str:
    """An operand as it has to stand in each of its places."""
    alone = rf"(?<=[(,])\s?\{{{place}\}}(?=[),])"
    everywhere = len(re.findall(alone, template)) == uses(template, place)
    return operand.code if everywhere else operand.at_least(ATOM)


def _is_call(code: str) -> bool:
    """Whether the text is one call: a name, then parentheses that close at its end."""
    if not re.match(r"[\w.]+(<\w+>)?\(", code) or not code.endswith(")"):
        return False
    depth = 0
    for at, sign in enumerate(code):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and sign == ")":
            return at == len(code) - 1
    return False
