"""Objects put together from what they hold, without running a constructor.

The function is a part of an emitted file that needs it, as it stands here, so it names nothing else
of this file.
"""

from __future__ import annotations

import inspect
from typing import Any


def _refold_made(kind: Any, items: Any, attributes: Any, same: Any = ()) -> Any:
    """An instance of the class `kind` with these items and attributes.

    A constructor is not run: it might change what it is given, which the original's has done once.
    same: names of items that are attributes, too.
    """
    made = kind.__new__(kind)
    for base in kind.__mro__:  # whatever the class itself does with an item has been done
        if base.__name__ in ("OrderedDict", "dict") and base.__module__ in (
            "collections",
            "builtins",
        ):
            for key, value in items.items():
                base.__setitem__(made, key, value)
            break
    for name in same:
        object.__setattr__(made, name, items[name])
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def made_text() -> list[str]:
    """The lines of the function as it stands in an emitted file."""
    return inspect.getsource(_refold_made).replace(": Any", "").replace(" -> Any", "").split("\n")
