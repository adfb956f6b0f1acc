"""The Jinja templates of this folder: the emitted file, and each target's part of it."""

from __future__ import annotations

from functools import cache

import jinja2


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("refold", "emit"),
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,
        undefined=jinja2.StrictUndefined,
    )


def render(template: str, **values: object) -> str:
    """The template with its values; a value that is missing is an error."""
    return _environment().get_template(template).render(values)
