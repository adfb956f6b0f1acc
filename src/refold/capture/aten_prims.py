"""Operators that decompositions write in the place of ATen's."""

from __future__ import annotations

from typing import Any

import torch

from refold.capture.aten_reduce import variance_of
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Number, Value, cast, operand
from refold.ir import make


@handles("prims.convert_element_type")
def _convert(out: Out, x: Value, dtype: torch.dtype) -> Value:
    return Value(cast(x, dtype).node, out[0])


@handles("prims.fma")
def _fma(out: Out, a: Value | Number, b: Value | Number, c: Value | Number) -> Value:
    product = make("mul", operand(a, out[1]), operand(b, out[1]))
    return result(make("add", product, operand(c, out[1])), out)


@handles("var_mean")
def _var_mean(
    out: list[Out], x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    need(x.dtype == out[0][1] == out[1][1], "another dtype")
    variance = variance_of(x, dim, correction, True, out[0])
    return [variance, HANDLERS["mean"](out[1], x, dim, keepdim)]
