"""A function of a kernel's body as statements: what is read once stands where it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from refold.codegen.expression import Text, filled, uses
from refold.codegen.expression import known as of_known
from refold.codegen.names import Names
from refold.ir import Node, Sym
from refold.ir.literals import cpp_literal

if TYPE_CHECKING:
    from refold.codegen.body import Body

_ROOM = 70  # characters of an expression inside another


class Statements:
    """Statements of one function. texts: of what has one by now. lines: the statements so far.
    read: operands and values given that they read.
    """

    def __init__(
        self,
        body: Body,
        known: Mapping[Node, str],
        given: Mapping[Node, str],
        lanes: str,
        in_order: bool,
    ) -> None:
        self.body, self.given, self.lanes, self.in_order = body, given, lanes, in_order
        self.texts = {n: of_known(t) for n, t in known.items()}
        self.lines: list[str] = []
        self.read: set[Node] = set()
        self.names = Names(body.taken)

    def write(
        self, targets: list[Node], room: int, stored: bool
    ) -> tuple[list[str], dict[Node, str]]:
        order = self._order(targets)
        uses = Counter(targets)
        for node in reversed(order):
            for place, i in enumerate(node.inputs if self._is_computed(node) else ()):
                uses[i] += self._uses(node, place, uses[node])
        for node in order:
            self.texts[node] = self._text(node, _ROOM if node not in targets else room)
            if uses[node] > 1 or (self.in_order and self._is_read_along_rows(node)):
                self._name(node)
        for k, node in enumerate(targets):
            if len(self.texts[node].code) > room or (stored and k):
                self._name(node)
        return self.lines, {t: self.texts[t].code for t in targets}

    def _order(self, targets: list[Node]) -> list[Node]:
        """What has to be written, each after what it is computed from."""
        order: list[Node] = []
        seen = set(self.texts)
        stack = [(t, False) for t in reversed(targets)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                if self._is_computed(node):
                    stack.extend((i, False) for i in reversed(node.inputs))
        return order

    def _is_computed(self, node: Node) -> bool:
        return bool(node.inputs) and node not in self.given and not self.body.is_read(node)

    def _uses(self, node: Node, place: int, times: int) -> int:
        """How often a value, whose text stands in `times` places, reads one of its operands."""
        if self.body.is_passed_on(node):
            return times
        return uses(node.row.cpp_template(node in self.body.apart), place)

    def _is_read_along_rows(self, node: Node) -> bool:
        body = self.body
        return body.is_read(node) and body.by_node[node].kind in ("full", "mixed")

    def _text(self, node: Node, room: int) -> Text:
        body = self.body
        if node in self.given:
            self.read.add(node)
            return Text(self.given[node])
        if node.op == "scalar" and not isinstance(node["value"], Sym):
            return Text(cpp_literal(node["value"]))
        if body.is_passed_on(node):
            return self.texts[node.inputs[0]]
        if body.is_read(node):
            self.read.add(node)
            return Text(body.load(body.by_node[node], self.lanes))
        while True:
            text = self._filled(node)
            long = [i for i in node.inputs if not self.texts[i].is_name]
            if len(text.code) <= room or not long:
                return text
            self._name(max(long, key=lambda i: len(self.texts[i].code)))

    def _filled(self, node: Node) -> Text:
        body = self.body
        template = node.row.cpp_template(node in body.apart).replace("<V>", f"<{self.lanes}>")
        # a lone number among lanes must be lanes where C++ cannot convert it
        operands = [body.argument(node, i, self.texts[i], self.lanes) for i in node.inputs]
        literals = {k: cpp_literal(v) for k, v in node.attrs}
        text = filled(template, operands, literals)
        return text if node not in body.rounded else Text(body.as_stored(node, text.code))

    def _name(self, node: Node) -> None:
        """Give the value a variable, unless it has a name."""
        text = self.texts[node]
        if text.is_name:
            return
        reads = self.body.is_read(node)
        base = f"{self.body.by_node[node].member}_at" if reads else node.op
        name = self.names.unique(base, numbered=not reads)
        kind = self.lanes if reads else "auto"
        self.lines.append(f"const {kind} {name} = {text.code};")
        self.texts[node] = Text(name)
