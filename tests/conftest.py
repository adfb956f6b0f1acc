"""Shared settings of the tests."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import compiler
import tiers

_FOLDER = tempfile.TemporaryDirectory(prefix="refold_headers_")

# before PyTorch imports SymPy, as the command refold does
os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")
if "CXX" not in os.environ:  # before anything reads it: Inductor does when it is imported
    # the processes of `make test` share the headers that they precompile
    compiler.install(Path(os.environ.get(compiler.FOLDER) or _FOLDER.name))
    os.environ.setdefault("REFOLD_CACHE", str(Path(_FOLDER.name, "cache")))
# what captures make lives on: to look at it for garbage so often takes a twelfth of all of Python
gc.set_threshold(10_000, 10, 10)
gc.disable()  # until all is imported, which lives on and is never looked at
ONE_THREAD = ("tests/rules/", "tests/engine/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also what tests/tiers.py leaves out")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only `make test-all` runs; what is named by itself stays."""
    named = any("::" in a for a in config.args)
    partly = named or config.getoption("lf", False)
    every = config.getoption("--all")
    for mistake in () if partly else tiers.mistakes(i.nodeid for i in items):
        if every:
            raise pytest.UsageError(f"tests/tiers.py: {mistake}")
        config.issue_config_time_warning(UserWarning(f"tests/tiers.py: {mistake}"), 2)
    if named or every:
        return
    config.hook.pytest_deselected(items=[i for i in items if not tiers.is_kept(i.nodeid)])
    items[:] = [i for i in items if tiers.is_kept(i.nodeid)]


@pytest.fixture(scope="module", autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread where PyTorch computes a few numbers at a time: two of them wait for each other
    half of the time."""
    import torch  # not before what is set above

    before = torch.get_num_threads()
    if request.node.nodeid.startswith(ONE_THREAD):
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def optimization(request: pytest.FixtureRequest) -> Iterator[None]:
    """The shorter command compiles without optimization where speed does not matter."""
    file = request.node.nodeid
    if request.config.getoption("--all") or file in tiers.AS_SHIPPED:
        yield
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(compiler.OPTIMIZE, "-O0")
            yield
