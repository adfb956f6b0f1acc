"""Which references a suite has: of a folder, of a list, of KernelBench's levels."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class SuiteError(ValueError):
    """What was asked for cannot be run; one line: what was expected, what came, what to do."""


@dataclass(frozen=True)
class Task:
    """One reference. sets: NAME=VALUE, which override its constants."""

    name: str
    path: Path
    sets: tuple[str, ...] = ()

    def text(self) -> str:
        """The file's text; empty where it cannot be read, which the task's own row tells."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    @property
    def file(self) -> str:
        """A name for what is written of it."""
        plain = re.sub(r"[^\w.-]+", "_", self.name).strip("._") or "task"
        if plain != self.name:
            plain += f"_{hashlib.sha256(self.name.encode()).hexdigest()[:6]}"
        return plain


def find(paths: Sequence[str | Path]) -> list[Task]:
    """The tasks of folders (their Python files), of Python files, and of lists: text files with a
    path and perhaps NAME=VALUE in each line, `#` before what is no task.

    Raises:
        SuiteError: nothing is there, or two tasks have one name.
    """
    found: list[Task] = []
    for given in map(Path, paths):
        if given.is_dir():
            files = sorted(
                (p for p in given.glob("*.py") if not p.name.startswith(("_", "."))), key=_natural
            )
            if not files:
                raise SuiteError(f"{given}: expected a folder with Python files, came one without")
            found += [Task(p.stem, p) for p in files]
        elif given.suffix == ".py":
            found.append(Task(given.stem, given))
        else:
            found += _listed(given)
    return _named_once(found)


def _listed(path: Path) -> list[Task]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "no text"
        raise SuiteError(
            f"{path}: expected a folder, a Python file or a list of such ({said})"
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise SuiteError(f"{path}:{number}: {error}: {line.strip()}") from error
        if not words:
            continue
        if not words[0].endswith(".py") or any("=" not in w for w in words[1:]):
            raise SuiteError(
                f"{path}:{number}: expected FILE.py [NAME=VALUE]..., came {line.strip()!r}"
            )
        name = " ".join([words[0].removesuffix(".py"), *words[1:]])
        found.append(Task(name, path.parent / words[0], tuple(words[1:])))
    if not found:
        raise SuiteError(f"{path}: expected a list of Python files, came one without any")
    return found


def kernelbench(root: Path, levels: Sequence[int], only: Sequence[int] = ()) -> list[Task]:
    """The problems of KernelBench's levels in their order.

    root: a checkout, or its folder of levels. only: numbers of problems; none for all.
    """
    found = []
    for level in levels:
        folder = next(
            (p for p in (root / "KernelBench", root) if (p / f"level{level}").is_dir()), None
        )
        if folder is None:
            raise SuiteError(
                f"{root}: expected a checkout of KernelBench with a folder level{level}"
            )
        files = [p for p in (folder / f"level{level}").glob("*.py") if p.name[0].isdigit()]
        found += [
            Task(f"L{level}/{p.stem}", p)
            for p in sorted(files, key=_natural)
            if not only or _natural(p)[0] in only
        ]
    if not found:
        raise SuiteError(f"{root}: expected problems with these numbers, came none")
    return found


def _natural(path: Path) -> tuple[int, str]:
    """Numbered files come in the order of their numbers."""
    number = re.match(r"\d+", path.name)
    return (int(number[0]) if number else 0, path.name)


def _named_once(tasks: list[Task]) -> list[Task]:
    seen: dict[str, Task] = {}
    for task in tasks:
        had = seen.setdefault(task.name, task)
        if had is not task:
            raise SuiteError(
                f"two tasks are called {task.name} ({had.path}, {task.path}): rename one"
            )
    return tasks


@dataclass(frozen=True)
class Ask:
    """What is done with each task.

    options: of `refold optimize`, by their names in `report/arguments.py`. eager_seconds: sizes are
    halved until eager's forward is predicted to take so long; None leaves them. seconds, memory:
    what a task may take, of time and in bytes. here: what rows depend on beside all that, versions
    above all.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    eager_seconds: float | None = None
    seconds: float = 600.0
    memory: int = 8 << 30
    here: Mapping[str, str] = field(default_factory=dict)

    def key(self, task: Task) -> str:
        """Alike where a task would have the same row again. What a task may take counts as well: a
        row may say that it took more."""
        asked = (self.eager_seconds, self.seconds, self.memory)
        tables = [sorted(table.items()) for table in (self.options, self.here)]
        told = repr((task.text(), task.sets, asked, tables))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def source_digest() -> str:
    """A digest of refold's own files: rows of another refold are no rows of this one."""
    root = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        found.update(str(path.relative_to(root)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
