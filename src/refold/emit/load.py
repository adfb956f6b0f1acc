"""Import emitted text without a file."""

from __future__ import annotations

import functools
import hashlib
import linecache
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

_BEGIN = "\nclass ModelNew(Model):\n"


@functools.lru_cache(maxsize=2)  # what is timed is imported again for whoever asked for it
def _code(text: str, filename: str) -> types.CodeType:
    return compile(text, filename, "exec")


def file_of(cls: type) -> dict[str, Any]:
    """The name `__file__` for text that holds the file of a class, which may ask for it."""
    place = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return {"__file__": place} if place else {}


def load_text(
    text: str,
    names: Mapping[str, Any] | None = None,
    keep: bool = True,
    made: Callable[..., type] | None = None,
) -> types.ModuleType:
    """Execute emitted text as a module of its own, whose source inspect can show.

    names: what the text finds already defined (the class, where the text does not hold it).
    keep: whether the module stays in sys.modules; else it goes when nobody holds it.
    made: makes ModelNew of its name, bases and attributes, in the place of Model's metaclass.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name, filename = f"refold_emitted_{digest}", f"<emitted {digest}>"
    module = types.ModuleType(name)
    module.__dict__.update(names or {})
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    before = sys.modules.get(name)
    sys.modules[name] = module  # the text's own classes may look for their module
    if made is not None:
        module.__dict__["_refold_made_by"] = made
        text = text.replace(_BEGIN, _BEGIN.replace(")", ", metaclass=_refold_made_by)"), 1)
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
