"""What running a module may move, put back afterwards: its modes and its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def kept(module: torch.nn.Module) -> Iterator[None]:
    """Run the block, then give every module inside `module` its own mode back (one may be frozen in
    eval mode while the others train) and every buffer its values.

    A buffer that still has its values is not written: its version does not move.
    """
    modes = {m: m.training for m in module.modules()}
    buffers = {k: b.clone() for k, b in module.named_buffers()}
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training
        with torch.no_grad():
            # by name: forward may have put another tensor in a buffer's place
            for name, buffer in module.named_buffers():
                if name in buffers and not torch.equal(buffer, buffers[name]):
                    buffer.copy_(buffers[name])
