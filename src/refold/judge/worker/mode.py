"""Modes of operators that do not import PyTorch's compiler, which takes seconds."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """PyTorch hides each mode from its compiler, and imports that for it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
