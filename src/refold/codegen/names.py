"""Names in a kernel's C++: what a body may call its members and its variables, and declarations."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Container, Iterable
from itertools import groupby
from operator import itemgetter

from refold.ir import Node

_KEYWORDS_TEXT = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const
    continue decltype default delete do double else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not operator or private protected
    public register requires return short signed sizeof static struct switch template this throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
"""
# of the functions and types that bodies and the entries around them are written with
_OURS = """
    as_last channels given images C Column List Reused ReusedQuantized Row Step V Vec a a_packed
    a_side acc args arrivals batches body c channel cls col column count depth destination device
    error finalize finalize_column finalize_row full here image_deep image_high image_wide
    in_pairs known lanes look n on outer put quantized r read results rf rf_watch rounded row rows
    s scalar scratch self set set_column size state store stream take_look term v value values w
    w_packed w_side where width work
"""


KEYWORDS = frozenset(_KEYWORDS_TEXT.split())


def reserved(nodes: Iterable[Node], apart: Container[Node]) -> set[str]:
    """What nothing in a functor that computes `nodes` may be called: their texts call it.

    apart: those whose text is the one that keeps them apart.
    """
    texts = {t for n in nodes if (t := n.row.cpp_apart if n in apart else n.row.cpp)}
    called = (word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))
    return {*KEYWORDS, *_OURS.split(), *called}


_LONGEST = 28


class Names:
    """Names that are all different. taken: those that nothing may have."""

    def __init__(self, taken: Iterable[str] = KEYWORDS) -> None:
        self.taken = set(taken)
        self.last: Counter[str] = Counter()

    def unique(self, base: str, numbered: bool = False) -> str:
        """A name like `base`. numbered: whether the first of its kind has a number."""
        base = _short(base)
        while True:
            self.last[base] += 1
            number = self.last[base]
            between = "_" if base[-1].isdigit() else ""
            name = f"{base}{between}{number}" if number > 1 or numbered else base
            if name not in self.taken:
                self.taken.add(name)
                return name


def _short(name: str) -> str:
    """The last parts of a long name."""
    while len(name) > _LONGEST and re.match(r"[^_]*_[A-Za-z]", name):
        name = name.partition("_")[2]
    return name


def pointers_text(members: Iterable[tuple[str, str]]) -> list[str]:
    """Declarations of pointers, those of one type together. members: (type, name)."""
    lines = []
    for kind, named in groupby(members, key=itemgetter(0)):
        names = [name for _, name in named]
        text = ", ".join(f"*{name}" for name in names) if len(names) > 1 else names[0]
        star = "" if len(names) > 1 else "*"
        lines += wrapped(f"{kind}{star} {text};", "", "    ")
    return lines


def together(statements: Iterable[str]) -> list[str]:
    """Short statements, as many on a line as fit inside a function."""
    lines: list[str] = []
    for text in statements:
        if lines and len(lines[-1]) + 1 + len(text) <= 96:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines


def wrapped(text: str, first: str, later: str | None = None) -> list[str]:
    """Text in lines that fit a file's width inside a struct."""
    return textwrap.wrap(
        text,
        98,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )


_NO_BREAK = "\0"


def at_commas(text: str, depth: int, first: str) -> list[str]:
    """C++ in lines that fit inside a struct, broken behind commas inside of at most so many
    brackets."""
    made, inside = [], 0
    for before, c in zip(f" {text}", text, strict=False):
        inside += (c in "(<{") - (c in ")>}")
        made.append(_NO_BREAK if c == " " and (before != "," or inside > depth) else c)
    return [line.replace(_NO_BREAK, " ") for line in wrapped("".join(made), first, "    ")]
