"""What refold says while it works: loggers below "refold", and switches for them.

REFOLD_LOGS=rewrites,fallbacks,cache in the environment prints these on standard error; "all" prints
all of them. Without it Python's own logging decides: warnings are shown.
"""

from __future__ import annotations

import logging
import os
import sys

KINDS = {
    "rewrites": "what was rewritten in a module, and where its original is kept",
    "fallbacks": "why a call took the original forward, once for each reason",
    "cache": "kernels that were found or compiled, and folded parameters that were computed",
}
rewrites = logging.getLogger("refold.rewrites")


def switch_on(asked: str | None = None) -> None:
    """Print the kinds that are asked for, by default those of REFOLD_LOGS; what is no kind is told
    of in a line."""
    words = (asked if asked is not None else os.environ.get("REFOLD_LOGS", "")).split(",")
    names = dict.fromkeys(word.strip() for word in words if word.strip())
    for name in KINDS if "all" in names else names:
        log = logging.getLogger(f"refold.{name}")
        if name not in KINDS:
            known = ", ".join(KINDS)
            print(f"refold: REFOLD_LOGS has no {name!r}: there are {known}, all", file=sys.stderr)
        elif not log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(f"[{name}] %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
            log.propagate = False
