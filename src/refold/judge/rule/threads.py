"""How many threads read a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

# elements, of which two threads gain less than they lose waiting for one another; by judgement
_SMALL = 1 << 20


def small(elements: int) -> bool:
    """Whether one thread does as well on so many elements."""
    return elements <= _SMALL


@contextlib.contextmanager
def few(elements: int) -> Iterator[None]:
    """One thread for small tensors: on a busy machine each operation of two threads waits until
    both have had a processor, milliseconds for microseconds of work."""
    before = torch.get_num_threads()
    if not small(elements) or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
