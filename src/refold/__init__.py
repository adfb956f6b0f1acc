"""refold: a PyTorch module in, a drop-in module that computes the same function much faster out."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from refold.logs import switch_on

if TYPE_CHECKING:
    from refold.api import optimize as optimize
    from refold.backend import explain as explain
    from refold.introspect import status as status
    from refold.judge import judge as judge
    from refold.twin import original as original

__version__ = "0.1.0"
__all__ = ["explain", "judge", "optimize", "original", "status"]
switch_on()


def unsupported() -> str | None:
    """Why refold does not run on this system, or None."""
    if sys.platform == "linux":
        return None
    return f"refold runs on Linux; {sys.platform} is not supported, nor are Windows, macOS and ROCm"


if not TYPE_CHECKING:  # a name that there is not is an error for type checkers, too

    def __getattr__(name: str) -> Any:
        if name in __all__ and (problem := unsupported()) is not None:
            raise ImportError(problem)
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
