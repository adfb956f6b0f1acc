"""Kernels of many tests compiled beforehand, two at a time: tests mostly wait for a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

COMPILERS = 2


def beforehand(
    request: pytest.FixtureRequest,
    test: str,
    write: Callable[..., Any],
    build: Callable[[Any], Any],
) -> Mapping[tuple[Any, ...], Callable[[], Any]]:
    """For the parameters of each chosen case of `test`, a function that gives what was built.

    write: makes a case's text from its parameters, one case after another, because captures must
    not run side by side. build: compiles it. What either raises is raised by the function.
    """
    pool = ThreadPoolExecutor(COMPILERS)
    found: dict[tuple[Any, ...], Callable[[], Any]] = {}
    for item in request.session.items:
        if getattr(item, "originalname", "") != test or item.path != request.path:
            continue
        parameters = item.callspec.params
        key = tuple(parameters[k] for k in sorted(parameters))
        try:
            text = write(**parameters)
        except Exception as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            found[key] = failed.result
        else:
            found[key] = pool.submit(build, text).result
    pool.shutdown(wait=False)
    return found
