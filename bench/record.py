"""Rows of measurements, kept as CSV: what was measured before stays, new rows are added."""

from __future__ import annotations

import csv
import datetime
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent


def _said(*command: str) -> str:
    """What a command prints; nothing where there is no such command."""
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def commit(given: str = "") -> str:
    """What is measured: `given`, or the checkout's commit and `+` where sources differ from it.

    Empty outside a checkout.
    """
    if given:
        return given
    changed = _said("git", "diff", "--name-only", "HEAD", "--", "../src")
    return _said("git", "rev-parse", "--short", "HEAD") + "+" * bool(changed)


def gpu(measured: str = "") -> dict[str, str]:
    """What a GPU's numbers were measured on; measured: a commit, "" for the checkout's."""
    query = "--query-gpu=name,driver_version,clocks.max.sm,power.limit"
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "driver": _said("nvidia-smi", query, "--format=csv,noheader").partition("\n")[0],
        "torch": torch.__version__,
        "commit": commit(measured),
    }


class Record:
    """A CSV file and the rows that it had; columns that a row lacks stay empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="") as file:
                self.before = list(csv.DictReader(file))

    def write(self, found: Sequence[dict[str, Any]]) -> None:
        """The file's own rows, then `found`; called after each row, so that nothing is lost."""
        every = [*self.before, *found]
        names = list(dict.fromkeys(k for row in every for k in row))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(every)
