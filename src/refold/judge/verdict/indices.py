"""Integers that may be no indices: a GPU's kernel asserts, and its process has lost the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.verdict.session import Session


def are_taken(session: Session, given: Sequence[Any], init: Any = None) -> bool:
    """Whether the reference answers these inputs on the CPU, where a wrong index raises.

    init: what its constructor is given, where that is something else. Of a CPU's own session, and
    of inputs without integers, nothing is asked: True.
    """
    whole = (t for t in tensors(given) if not inexact(t) and t.dtype is not torch.bool)
    if session.device.type == "cpu" or not any(t.numel() for t in whole):
        return True
    try:
        model = session.reference.make(session.seed, init).cpu()
        with torch.no_grad():
            model(*draws.every(list(given), lambda t: t.detach().cpu()))
    except Exception:  # whatever it raises there, it is not asked on the device
        return False
    return True
