"""Import emitted text without a file."""

from __future__ import annotations

import functools
import hashlib
import linecache
import sys
import types
import weakref
from collections.abc import Mapping
from typing import Any


@functools.lru_cache(maxsize=2)  # what is timed is imported again for whoever asked for it
def _code(text: str, filename: str) -> types.CodeType:
    return compile(text, filename, "exec")


def load_text(
    text: str, names: Mapping[str, Any] | None = None, keep: bool = True
) -> types.ModuleType:
    """Execute emitted text as a module of its own, whose source inspect can show.

    names: what the text finds already defined (the class, where the text does not hold it).
    keep: whether the module stays in sys.modules; else it goes when nobody holds it.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name, filename = f"refold_emitted_{digest}", f"<emitted {digest}>"
    module = types.ModuleType(name)
    module.__dict__.update(names or {})
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    before = sys.modules.get(name)
    sys.modules[name] = module  # the text's own classes may look for their module
    try:
        exec(_code(text, filename), module.__dict__)
    finally:
        if not keep:
            if before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = before
            weakref.finalize(module, linecache.cache.pop, filename, None).atexit = False
    return module
