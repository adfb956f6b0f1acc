"""`refold build`: compile ahead, write, and say what was written."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from refold.build import BuildError, Built, build, kind_of, write
from refold.wheel import package_of, wheel


def build_command(args: argparse.Namespace) -> int:
    """See `refold build --help`; nothing is written unless all files were compiled."""
    folder, paths = Path(args.output), [Path(file) for file in args.files]
    _check(paths, folder, args.wheel)
    kinds = {p: kind_of(p) for p in paths}

    def meant(path: Path) -> list[str]:
        """The targets for a file: one for GPUs is not for the CPU's files among several."""
        families = {t: t.partition(":")[0] for t in args.targets}
        return [t for t, f in families.items() if f == kinds[path] or f not in kinds.values()]

    def told(line: str) -> None:
        print(f"refold: {line}", file=sys.stderr)

    built = [build(p, meant(p), told) for p in paths]
    if args.wheel:
        written = [wheel(built, args.wheel, args.wheel_version, folder)]
    else:
        written = [path for b in built for path in write(b, folder)]
    if args.json:
        rows = {str(b.path): [lib.row for lib in b.libraries] for b in built}
        print(json.dumps({"written": [str(p) for p in written], "libraries": rows}, indent=2))
        return 0
    for path in dict.fromkeys(written):
        print(f"{path.stat().st_size / 1024:9.0f} KiB  {path}")
    for line in dict.fromkeys(_needs(b) for b in built):
        print(line)
    return 0


def _check(paths: list[Path], folder: Path, name: str | None) -> None:
    stems = [p.stem for p in paths]
    for path in paths:
        if stems.count(path.stem) > 1:
            raise BuildError(f"two files are called {path.name}: one would take the other's place")
        if name and not path.stem.isidentifier():
            raise BuildError(f"{path.name} in a wheel could not be imported: rename it")
    if name:
        package_of(name)
    if folder.exists() and not folder.is_dir():
        raise BuildError(f"{folder} is no folder; -o names one")


def _needs(built: Built) -> str:
    needs: dict[str, list[str]] = {}
    for library in built.libraries:
        for name, value in library.needs.items():
            needs.setdefault(name, []).append(value)
    words = "; ".join(f"{n} {' or '.join(dict.fromkeys(v))}" for n, v in needs.items())
    return f"{built.path.name} runs without a compiler on: {words}"
