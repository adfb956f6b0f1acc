"""Containers that a fast call gives, put together without running their constructors."""

from collections import OrderedDict
from typing import Any


def _refold_made(kind: Any, items: Any, attributes: Any, same: Any = ()) -> Any:
    """An instance of the class `kind` with these items and attributes.

    A constructor might change what it is given, which the original's has done once. same: names of
    items that are attributes, too.
    """
    made = kind.__new__(kind)
    for base in kind.__mro__:  # whatever the class itself does with an item has been done
        if base in (OrderedDict, dict):
            for key, value in items.items():
                base.__setitem__(made, key, value)
            break
    for name in same:
        object.__setattr__(made, name, items[name])
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made
