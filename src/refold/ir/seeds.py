"""The states of PyTorch's generators: left as they are, or one for all that are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SEED = 1789  # of what is drawn to be compared


@contextmanager
def undrawn() -> Iterator[None]:
    """Run the block, then give all generators the states that they had."""
    state = torch.get_rng_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    states = [torch.cuda.get_rng_state(i) for i in gpus]
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for i, one in enumerate(states):
            torch.cuda.set_rng_state(one, i)


@contextmanager
def seeded() -> Iterator[None]:
    """Run the block with generators that begin at one state; they are left as they were."""
    with undrawn():
        # not torch.manual_seed: without a GPU in use it seeds that once there is one
        torch.default_generator.manual_seed(SEED)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(SEED)
        yield
