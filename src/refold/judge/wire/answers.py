"""What form the answers of a worker have: one of another form comes of a worker that was tampered
with, and is never a fault of the parent that reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, int | float) for v in value)


def _tensors(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, torch.Tensor) for v in value.values())


def _metas(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, dict)
        and isinstance(v.get("class"), str)
        and ("shape" not in v or {"dtype", "device", "stride", "layout", "inference"} <= set(v))
        for v in value
    )


def _pairs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, list | tuple) and len(v) == 2 and all(isinstance(n, int) for n in v)
        for v in value
    )


_CALL: dict[str, Callable[[Any], bool]] = {
    "meta": _metas,
    "random": lambda v: isinstance(v, str),
    "others": lambda v: isinstance(v, list) and len(v) == 2,
    "flags": _texts,
    "changed": _numbers,
    "written": lambda v: isinstance(v, list) and all(isinstance(t, torch.Tensor) for t in v),
    "forms": lambda v: isinstance(v, list) and len(v) == 2,
    "counted": lambda v: isinstance(v, list) and all(isinstance(one, bool) for one in v),
    "changed_later": lambda v: isinstance(v, bool),
    "seconds": lambda v: isinstance(v, int | float),
}


def _call(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "outputs" in value
        and all(key in value and right(value[key]) for key, right in _CALL.items())
        and _tensors(value.get("grads", {}))
    )


def _load(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("state"), dict)
        and _texts(value.get("assumes"))
        and _texts(value.get("flags"))
        and isinstance(value.get("hushed"), bool)
    )


def _life(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("seen"), list):
        return False
    raised = value.get("raised")
    if raised is not None and not (isinstance(raised, dict) and {"type", "message"} <= set(raised)):
        return False
    return all(isinstance(one, list) and len(one) == 3 for one in value["seen"])


_FORMS: dict[str, Callable[[Any], bool]] = {
    "load": _load,
    "call": _call,
    "live": _life,
    "state": _tensors,
    "complaints": _texts,
    "sandbox": _texts,
    "spoil": _pairs,
    "lap": lambda v: _numbers(v) and len(v) == 2,
    "kernels": _texts,
    "held": lambda v: isinstance(v, int),
    "warnings": lambda v: isinstance(v, list) and all(_texts(one) for one in v),
    "fresh_calls": lambda v: isinstance(v, int),
    "compile": lambda v: isinstance(v, int | float),
}


def fits(do: str, value: Any) -> bool:
    """Whether an answer to the command ``do`` can be read."""
    return do not in _FORMS or _FORMS[do](value)
