"""Numbers and attributes as text, in Python and in C++."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import torch

CPP_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "Half",
    torch.bfloat16: "Bfloat",
    torch.bool: "bool",
}


def python_literal(value: Any) -> str:
    """A number or an attribute as Python text."""
    if isinstance(value, (str, torch.dtype)):
        return str(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(python_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value) if isinstance(value, (bool, int, float)) or value is None else str(value)


def bare(text: str) -> str:
    """An expression without parentheses around all of it; those of a tuple stay."""
    depths = list(accumulate((c == "(") - (c == ")") for c in text))
    whole = text[:1] == "(" and 0 not in depths[:-1]
    commas = any(c == "," and d == 1 for c, d in zip(text, depths, strict=True))
    return text[1:-1] if whole and not commas else text


def cpp_literal(value: Any) -> str:
    """A number as a C++ float literal, exact in float32; a dtype as the kernels' element type."""
    if isinstance(value, torch.dtype):
        return CPP_TYPES.get(value, str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        number = float(value)
        if math.isnan(number):
            return "NAN"
        if math.isinf(number):
            return "INFINITY" if number > 0 else "-INFINITY"
        text = repr(number)
        if "e" not in text and "." not in text:
            text += ".0"
        return f"{text}f" if number >= 0 else f"({text}f)"
    return str(value)
