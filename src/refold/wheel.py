"""A wheel of built files: what pip installs, with one module for each file."""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from refold import __version__
from refold.build import BuildError, Built


def package_of(name: str) -> str:
    """What `import` calls a distribution. Raises BuildError where it could not, or where the name
    is taken by Python or by PyTorch."""
    package = re.sub(r"[-.]+", "_", name).lower()
    named = re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name)
    if not named or not package.isidentifier() or keyword.iskeyword(package):
        raise BuildError(
            f"a wheel cannot be called {name!r}: letters, digits, -, _ and . make a name"
        )
    if package in {*sys.stdlib_module_names, "torch", "refold"}:
        raise BuildError(f"a wheel cannot be called {name!r}: import {package} is another package")
    return package


def wheel(files: Sequence[Built], name: str, version: str, folder: Path) -> Path:
    """Write a wheel into a folder; its path. Raises BuildError.

    Its tags are those of the Pythons that all libraries are for.
    """
    package = package_of(name)
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", version):
        raise BuildError(f"{version!r} is no version: 1.0 is one")
    pythons = sorted({_tag(lib.needs["Python"]) for built in files for lib in built.libraries})
    (machine,) = {p[1] for p in pythons}  # all were compiled on this one
    tag = f"{'.'.join(p[0] for p in pythons)}-none-{machine}"
    content: dict[str, bytes] = {f"{package}/__init__.py": _init(files).encode()}
    for built in files:
        content |= {f"{package}/{at}": data for at, data in built.files().items()}
    info = f"{package}-{version}.dist-info"
    content[f"{info}/METADATA"] = _metadata(name, version, files).encode()
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: refold {__version__}\nRoot-Is-Purelib: false\n"
        + "".join(f"Tag: {p[0]}-none-{machine}\n" for p in pythons)
    ).encode()
    record = "".join(f"{at},sha256={_digest(data)},{len(data)}\n" for at, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for at, data in content.items():
            entry = zipfile.ZipInfo(at, (2020, 1, 1, 0, 0, 0))  # the same files, the same bytes
            entry.external_attr, entry.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{package}-{version}-{tag}.whl"
    draft = path.with_suffix(".draft")
    draft.write_bytes(held.getvalue())
    draft.replace(path)
    return path


def _tag(python: str) -> tuple[str, str]:
    """Of "cpython-311-x86_64-linux-gnu" the tags of a wheel: "cp311" and "linux_x86_64"."""
    _, version, machine, system, *_ = python.split("-")
    return f"cp{re.sub(r'[a-z]+$', '', version)}", f"{system}_{machine}"


def _init(files: Sequence[Built]) -> str:
    names = ", ".join(f"{built.path.stem}.ModelNew" for built in files)
    return f'"""Models made faster by refold, with their kernels compiled: {names}."""\n'


def _metadata(name: str, version: str, files: Sequence[Built]) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: PyTorch models with compiled kernels: {', '.join(b.path.stem for b in files)}",
        "Requires-Dist: torch>=2.11",
    ]
    return "\n".join(lines) + "\n"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
