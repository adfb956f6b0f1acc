"""Emitted Python in lines that fit a page: statements and tables, broken where brackets allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

WIDTH = 100


def literal(value: Any) -> str:
    """A constant as Python text, with double quotes."""
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if '"' not in text and "\\" not in text else text
    if type(value) is tuple:
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) is dict:
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def fitted(line: str, indent: int = 0) -> list[str]:
    """A statement or a row of a table in lines of at most WIDTH characters, `indent` more standing
    before each.

    It is broken at commas inside of brackets; a condition at its `or`s. A line without such places
    stays as long as it is.
    """
    lead = " " * (len(line) - len(line.lstrip()))
    if len(line) + indent <= WIDTH:
        return [line]
    room = indent + len(lead) + 4
    if line.lstrip().startswith("if ") and line.endswith(":") and " or " in line:
        first, *more = line.strip()[3:-1].split(" or ")
        texts = filled([first, *(f"or {part}" for part in more)], room)
        return [f"{lead}if (", *(f"{lead}    {text}" for text in texts), f"{lead}):"]
    if len(split(line, 1)) == 1:
        line = _in_brackets(line)
    head, *rest = filled(_parts(line, room), room)
    return [lead + head, *(f"{lead}    {text}" for text in rest)]


def _parts(line: str, room: int) -> list[str]:
    """What a statement is broken into: at the outermost commas, unless a part is too long then."""
    parts = split(line, 1)
    for depth in (2, 3, 99):
        if all(len(part) + room <= WIDTH for part in parts):
            break
        parts = split(line, depth)
    return parts


def _in_brackets(line: str) -> str:
    """A statement with its tuple of results, or of targets, in brackets."""
    left, is_set, right = line.partition(" = ")
    lead = line[: len(line) - len(line.lstrip())]
    if line.lstrip().startswith("return "):
        return f"{lead}return ({line.strip()[7:]})"
    return f"{lead}({left.strip()}) = {right}" if is_set and "," in left else line


def all_fitted(lines: Iterable[str], indent: int = 0) -> list[str]:
    """Statements, each in lines that fit."""
    return [part for line in lines for part in fitted(line, indent)]


def filled(parts: Iterable[str], indent: int) -> Iterator[str]:
    """Parts one after the other, as many on a line as fit behind an indent."""
    line = ""
    for part in parts:
        if line and len(line) + 1 + len(part) + indent > WIDTH:
            yield line
            line = part
        else:
            line = f"{line} {part}" if line else part
    if line:
        yield line


def split(line: str, deepest: int) -> list[str]:
    """A statement's parts, each but the last with the comma at which it may be broken: those inside
    of brackets, of so many at most, and not right before one closes."""
    parts, depth, begin = [], 0, 0
    for i, sign in _signs(line):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and 0 < depth <= deepest and line[i + 1 :].lstrip()[:1] not in ")]}":
            parts.append(line[begin : i + 1].strip())
            begin = i + 1
    return [p for p in (*parts, line[begin:].strip()) if p]


def _signs(text: str) -> Iterator[tuple[int, str]]:
    """The characters outside of quotes and comments, and where they stand."""
    quote, skip = "", False
    for i, sign in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "#":
            return
        else:
            yield i, sign
