"""A constructor's arguments, of which some may be given by name."""

from __future__ import annotations

import inspect
from typing import Any


def by_position(cls: type, given: Any) -> Any:
    """A constructor's arguments in order. given: these, or `[[...], {name: value}]`: a list of
    those in order and a dict of those by name, as other collections of models have it.

    Two arguments that are a list and a dict stay what they are, unless the dict's names are all
    parameters' names, or both are empty and the constructor needs none; so does what is no list.
    Raises TypeError, as a call would, where arguments do not fit, or where one can be given by
    name alone.
    """
    if not isinstance(given, list | tuple) or len(given) != 2:
        return given
    ordered, named = given
    if not isinstance(ordered, list | tuple) or not isinstance(named, dict):
        return given
    signature = inspect.signature(cls)
    if not named and (ordered or not _takes_none(signature)):
        return given
    if set(named) - set(signature.parameters):
        return given
    bound = signature.bind(*ordered, **named)
    found = list(bound.args)
    if bound.kwargs:  # behind one that is left out, or by name alone
        bound.apply_defaults()
        found = list(bound.args)
        if bound.kwargs:
            raise TypeError(f"{', '.join(bound.kwargs)} can be given by name alone")
    return found


def _takes_none(signature: inspect.Signature) -> bool:
    try:
        signature.bind()
    except TypeError:
        return False
    return True
