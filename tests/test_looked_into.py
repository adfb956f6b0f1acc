"""A class that nobody has asked for an attribute has no tag, by which its changes would be seen."""

from __future__ import annotations

import torch
from torch import nn

import refold
from refold import twin


class Never:
    """Reached by forward, and never looked into."""

    def method(self) -> None: ...


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(x, Never):
            raise TypeError("never")
        made: torch.Tensor = self.layer(x).sum(1)
        return made


def test_calls_like_the_last_look_at_nothing_anew() -> None:
    """All is examined at the first call alone."""
    module, x = Asks().eval(), torch.randn(3, 8)
    fast = refold.optimize(module, x, measure=False)
    assert fast is not module
    rows = twin.namespaces(fast)[0]._RefoldRows
    made = []
    own = rows.__init__

    def counted(self: object, *args: object, **kwargs: object) -> None:
        made.append(self)
        own(self, *args, **kwargs)

    rows.__init__ = counted
    Never.written = 1  # type: ignore[attr-defined]  # it had a tag, and has none
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(fast(x), module(x))
    assert len(made) == 1
