"""refold doctor and refold cache, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from refold import cli
from refold.report import doctor


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def found() -> dict[str, doctor.Check]:
    return {c.name: c for c in doctor.checks()}


def test_each_check_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == list(found())
    assert cli.main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in told] == list(found())
    # a PyTorch for GPUs misses one
    missed = {"GPU"} if torch.version.cuda and not torch.cuda.is_available() else set()
    assert {c["name"] for c in told if c["cure"]} == missed


def test_what_is_missing_has_a_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cli.main(["doctor"]) == 1
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("C++"))
    assert line.endswith(
        "no no-such-compiler on PATH: install g++ or clang++ (C++20), or name one in CXX"
    )
    monkeypatch.setattr(doctor.sys, "platform", "freebsd14")  # Python itself asks for Windows
    assert found()["system"].needed and "not supported" in found()["system"].cure
    monkeypatch.setattr(doctor.torch.version, "hip", "6.0")
    assert "ROCm" in found()["GPU"].said and "no kernels" in found()["GPU"].cure


def test_a_cache_that_cannot_be_made_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_refold_roots", lambda: [str(tmp_path)])
    assert "REFOLD_CACHE" in found()["cache"].cure


def test_the_cache_is_shown_and_cleared(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = home / "libraries" / "refold_cpu_0"
    library.mkdir(parents=True)
    (library / "one.so").write_bytes(bytes(3 << 20))
    (library / "stamp").touch()
    (home / "schedules.json").write_text("{}")
    stranger = home / "libraries" / "somebody's"
    stranger.mkdir()
    assert found()["libraries"].said.startswith(f"{home}/libraries, 1 libraries, 3.0 of 4096 MiB")
    assert cli.main(["cache"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["3072", "0"]
    assert library.exists()
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == "3.0 MiB removed\n"
    assert not library.exists() and not (home / "schedules.json").exists() and stranger.exists()
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"nothing is kept in {home}/libraries or {home}\n"
