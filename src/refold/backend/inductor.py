"""Inductor as this backend calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch


def compile_inner(module: torch.fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Any:
    """What Inductor makes of a graph.

    Of each operator that it has no code for, Inductor makes a text with all that the operator
    reads, in PyTorch 2.11 whether or not anybody logs it. That holds the text of what was read
    before, so that each further operator in a chain takes several times as long as the last: of
    BERT's twelve layers no end was seen. Here the text is the operator's name.
    """
    from torch._inductor import exc
    from torch._inductor.compile_fx import compile_fx_inner

    issue: Any = exc.OperatorIssue
    with mock.patch.object(issue, "operator_str", staticmethod(_named)):
        return compile_fx_inner(module, inputs, **given)


def _named(target: Any, args: Any, kwargs: Any) -> str:
    return f"  target: {target}"
