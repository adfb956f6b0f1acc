"""A float64 result held as what it lies apart from eager's: half the bytes, and its digits.

The distance is kept in float32. It is itself of the size of a rounding error, so that what float32
rounds of it is that much smaller again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge.draws.trees import each

SAMPLED = 1 << 16  # elements that some rows hold, see `some`
LEAST = 8 << 20  # bytes of eager's output: smaller results are held as they are
# elements: temporaries stay small; a CPU's stay in its cache, and in memory that is used again
_CHUNKS = {True: 1 << 22, False: 1 << 20}


class Beside:
    """A float64 tensor, beside another of its shape. It is read by pieces of its flat form.

    Where the other is not finite, the value itself is kept (in float32: what overflows there is
    infinite).
    """

    dtype = torch.float64

    def __init__(self, wide: torch.Tensor, base: torch.Tensor) -> None:
        self.shape, self.device = base.shape, base.device
        self._base = base.reshape(-1)
        self._rest = torch.empty(base.numel(), dtype=torch.float32, device=base.device)
        self._finite = True
        for at in slices(base.numel(), base.device):
            part, own = piece(wide, at).to(base.device), self._base[at]
            held = part - own
            finite = torch.isfinite(own)
            if not bool(finite.all()):
                self._finite, held = False, torch.where(finite, held, part)
            self._rest[at] = held

    def flat(self, at: slice | torch.Tensor) -> torch.Tensor:
        """Float64 values of a part of the flat form."""
        own, rest = self._base[at].double(), self._rest[at].double()
        return own + rest if self._finite else torch.where(torch.isfinite(own), own + rest, rest)

    def wide(self) -> torch.Tensor:
        """The whole tensor."""
        return self.flat(slice(None)).reshape(self.shape)

    def every(self, index: tuple[slice, ...]) -> torch.Tensor:
        """A part of the tensor."""
        own = self._base.reshape(self.shape)[index]
        rest = self._rest.reshape(self.shape)[index].double()
        sums = own.double() + rest
        return sums if self._finite else torch.where(torch.isfinite(own), sums, rest)

    def numel(self) -> int:
        """Elements."""
        return self._rest.numel()

    def dim(self) -> int:
        """Axes."""
        return len(self.shape)

    def bytes(self) -> int:
        """What it holds of its own."""
        return self._rest.numel() * self._rest.element_size()


Exact = torch.Tensor | Beside


def chunk(device: torch.device) -> int:
    """Elements of a part that is read at once."""
    return _CHUNKS[device.type == "cuda"]


def slices(count: int, device: torch.device) -> Iterator[slice]:
    """Parts of a flat form."""
    size = chunk(device)
    for i in range(0, count, size):
        yield slice(i, min(i + size, count))


def piece(value: Exact, at: slice) -> torch.Tensor:
    """A part of the flat form of a tensor; of one that is not dense without a copy of the whole."""
    if isinstance(value, Beside):
        return value.flat(at)
    if value.is_contiguous():
        return value.detach().reshape(-1)[at]
    if value.dim() and value.shape[0] and value.numel():
        each = value.numel() // value.shape[0]
        first, last = at.start // each, -(-at.stop // each)
        rows = value.detach()[first:last].reshape(-1)
        return rows[at.start - first * each : at.stop - first * each]
    return value.detach().reshape(-1)[at]


def gathered(value: Exact, at: torch.Tensor) -> torch.Tensor:
    """The values at flat positions; of complex ones those of `parts`."""
    value = parts(value)
    if isinstance(value, Beside):
        return value.flat(at.to(value.device))
    return value.reshape(-1)[at.to(value.device)]


def parts(value: Exact) -> Exact:
    """Complex numbers as pairs of real ones, which the rule compares; else what it is."""
    if isinstance(value, Beside) or not value.is_complex():
        return value
    return torch.view_as_real(value.resolve_conj())


def held(wide: Any, eager: Any, other: Callable[[Any], Any]) -> Any:
    """A tree of float64 results beside eager's; small tensors, and what is none, by ``other``."""
    if isinstance(wide, list | tuple) and isinstance(eager, list | tuple):
        if len(wide) == len(eager):
            parts = [held(a, b, other) for a, b in zip(wide, eager, strict=True)]
            return parts if isinstance(wide, list) else tuple(parts)
    elif isinstance(wide, dict) and isinstance(eager, dict) and len(wide) == len(eager):
        pairs = zip(eager, wide.values(), eager.values(), strict=True)
        return {k: held(a, b, other) for k, a, b in pairs}
    elif isinstance(wide, torch.Tensor) and isinstance(eager, torch.Tensor) and _fits(wide, eager):
        return Beside(wide, eager)
    return other(wide)


def _fits(wide: torch.Tensor, eager: torch.Tensor) -> bool:
    narrow = eager.dtype in (torch.float32, torch.float16, torch.bfloat16)
    large = eager.numel() * eager.element_size() >= LEAST
    return large and narrow and wide.dtype == torch.float64 and wide.shape == eager.shape


def whole(tree: Any) -> Any:
    """The tree with plain tensors."""
    return each(tree, lambda leaf: leaf.wide() if isinstance(leaf, Beside) else leaf)


def shape(value: Any) -> torch.Size | None:
    """Of a tensor, however it is held; None of anything else."""
    return value.shape if isinstance(value, torch.Tensor | Beside) else None


def some(tree: Any) -> Any:
    """A tree of outputs with some rows of each large tensor."""
    return each(tree, _some)


def _some(t: Any) -> Any:
    size = shape(t)
    if not size or t.numel() < 2 * SAMPLED:
        return t
    index, parts = [], t.numel() / SAMPLED
    for n in size[: max(1, len(size) - 1)]:  # rows are whole; of one axis elements are samples
        kept = max(1, int(n / parts))
        index.append(slice(None, None, -(-n // kept)))
        parts *= len(range(n)[index[-1]]) / n
    return t.every(tuple(index)) if isinstance(t, Beside) else t[tuple(index)]
