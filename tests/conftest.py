"""Shared settings of the tests."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import compiler

_FOLDER = tempfile.TemporaryDirectory(prefix="refold_headers_")


def pytest_configure(config: pytest.Config) -> None:
    if "CXX" not in os.environ:
        compiler.install(Path(_FOLDER.name))
