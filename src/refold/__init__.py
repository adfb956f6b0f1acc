"""refold: a PyTorch module in, a drop-in module that computes the same function much faster out."""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["explain", "judge", "optimize", "original", "status"]


def __getattr__(name: str) -> Any:
    # loaded when asked for: the judge must be usable without the optimizer
    if name == "optimize":
        from refold.api import optimize

        return optimize
    if name == "explain":
        from refold.backend import explain

        return explain
    if name == "original":
        from refold.twin import original

        return original
    if name == "status":
        from refold.introspect import status

        return status
    if name == "judge":
        return importlib.import_module("refold.judge")  # the package can be called
    raise AttributeError(f"refold has no attribute {name!r}; it offers {', '.join(__all__)}")
