"""The command `refold`: what can begin before PyTorch is imported, then the command line."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys

from refold import unsupported

NO_TORCH = "PyTorch is missing here: pip install 'torch>=2.11'"


def main() -> int:
    """See `refold.cli.main`. The judge's fork server imports PyTorch for seconds, and so does this
    process: they do it side by side."""
    problem = unsupported()
    if problem is None and importlib.util.find_spec("torch") is None:
        problem = NO_TORCH
    if problem is not None:
        print(f"refold: {problem}", file=sys.stderr)
        return 1
    # torch.export asks SymPy again and again of what a model with many sizes assumes: its usual
    # thousand answers are soon forgotten, and a quarter of a capture is their second computation
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")
    from refold.judge.wire import forkserver

    if sys.argv[1:2] == ["judge"] and not {"-h", "--help"} & set(sys.argv):
        # before PyTorch is imported: this process waits for workers, on whose processors its
        # threads would spin
        os.environ.update(forkserver.PASSIVE)
        forkserver.expect()
    # what is imported lives on: to look for garbage among it takes a third of the time
    gc.disable()
    from refold.cli import main as command

    gc.freeze()
    gc.enable()
    return command()
