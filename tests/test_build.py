"""refold build: what it writes runs without a compiler, and nothing that is not whole is loaded."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from refold import build as building
from refold import cli
from refold.build import BuildError, Built, Library
from refold.emit.cuda import nvcc
from refold.runtime import built
from refold.runtime.built import _refold_built, _refold_digest, _refold_here
from refold.wheel import package_of, wheel
from test_models import result_of

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(40, 8)
    def forward(self, x):
        return torch.tanh(self.fc(x)).sum(1)
"""
USE = """
import logging, os, sys, torch
logging.basicConfig(format="%(message)s")
torch.manual_seed(0)
import {module} as emitted
model = emitted.ModelNew().eval().to(os.environ.get("device", "cpu"))
with torch.no_grad():
    x = torch.randn(6, 40).to(model.fc.weight.device)
    found, wanted = model(x), emitted.Model.forward(model, x)
assert (found - wanted).abs().max() < 1e-5
assert not torch.cuda.is_available() or torch.cuda.current_device() == 0
assert emitted._refold_problem or not {{"ninja", "setuptools", "refold"}} & set(sys.modules)
print(emitted._refold_problem)
"""
KEPT = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with emitted files for the CPU and a GPU, and the CPU's built."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "model.py").write_text(MODEL)
    scope: dict[str, Any] = {"__name__": "model"}
    exec(MODEL, scope)
    torch.manual_seed(0)
    module = scope["Model"]().eval()
    for name, target in (("fast", "cpu"), ("fast_90", "cuda:sm_90"), ("fast_80", "cuda:sm_80")):
        text = result_of(module, [torch.randn(6, 40)], target).text
        assert text is not None
        (folder / f"{name}.py").write_text(f"{MODEL}\n{text}")
    building.write(building.build(folder / "fast.py"), folder / "built")
    return folder


@pytest.fixture
def copy(files: Path, tmp_path: Path) -> Path:
    """The built folder, to be damaged; its libraries."""
    shutil.copytree(files / "built", tmp_path / "built")
    (libraries,) = (tmp_path / "built").glob("refold_cpu_*")
    return libraries


def use(folder: Path, home: Path, module: str = "fast", **more: str) -> tuple[str, str]:
    """In a process without a compiler and without a place for a cache: why there are no kernels,
    and what was logged."""
    home.mkdir(mode=0o500, exist_ok=True)
    bare = {"PATH": "/nonexistent", "HOME": str(home), "PYTHONPATH": str(folder), **more}
    bare |= {"TMPDIR": str(home)} | {n: os.environ[n] for n in KEPT if n in os.environ}
    run = [sys.executable, "-B", "-c", USE.format(module=module)]
    done = subprocess.run(run, env=bare, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


NO_AVX512 = not torch.cpu._is_avx512_supported()
WIDE = pytest.mark.skipif(NO_AVX512, reason="the processor has no AVX-512")


@pytest.mark.parametrize("level", ["avx2", pytest.param("avx512", marks=WIDE)])
def test_it_runs_without_a_compiler(files: Path, tmp_path: Path, level: str) -> None:
    problem, said = use(files / "built", tmp_path / "home", ATEN_CPU_CAPABILITY=level)
    assert (problem, said) == ("None", "")
    assert not list(tmp_path.glob("home/.cache/refold/libraries/refold_*"))


def test_a_file_may_import_what_lies_beside_it(files: Path, tmp_path: Path) -> None:
    (tmp_path / "beside_refolds_test.py").write_text("WIDTH = 40")
    text = (files / "fast.py").read_text()
    head = "from beside_refolds_test import WIDTH\nHERE = __file__"
    (tmp_path / "fast.py").write_text(f"{head}\n{text}")
    before = list(sys.path)
    assert building.kind_of(tmp_path / "fast.py") == "cpu"
    found = building._imported((tmp_path / "fast.py").read_text(), tmp_path / "fast.py")
    assert found.WIDTH == 40 and str(tmp_path / "fast.py") == found.HERE
    assert sys.path == before and "REFOLD_DISABLE" not in os.environ


def here(library: Path, **more: Any) -> dict[str, Any]:
    (row,) = (r for r in listed(library)["libraries"] if r["needs"]["processor"] == "AVX2")
    return {n: [v] for n, v in row["needs"].items()} | more


def listed(libraries: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((libraries / "built.json").read_text())
    return found


def asked(libraries: Path, **more: Any) -> Any:
    text = (libraries.parent / "fast.py").read_text()
    namespace = building._imported(text)
    file = str(libraries.parent / "fast.py")
    return _refold_built(libraries.name, namespace._REFOLD_SOURCE, file, here(libraries, **more))


def test_the_best_that_the_processor_runs_is_taken(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built, "_refold_loaded", lambda name, path: Path(path).name.split(".")[:1])
    assert asked(copy, processor=["AVX512", "AVX2", "DEFAULT"]) == ["AVX512"]
    assert asked(copy, processor=["AVX2", "DEFAULT"]) == ["AVX2"]
    assert _refold_built("refold_cpu_0", "", str(copy.parent / "fast.py"), {}) is None
    assert _refold_built(copy.name, "", None, {}) is None


@pytest.mark.parametrize(
    "other",
    [
        {"Python": ["cpython-399-x86_64-linux-gnu"]},
        {"PyTorch": ["2.0"]},
        {"processor": ["DEFAULT"]},
        {"processor": [], "PyTorch": ["2.0"]},
    ],
    ids=str,
)
def test_for_another_machine_it_is_not_loaded(copy: Path, other: dict[str, Any]) -> None:
    said = asked(copy, **other)
    assert "\n" not in said and f"the kernels in {copy} were built for " in said
    for name, values in other.items():
        assert re.search(rf"{name} \S+ \(here: {', '.join(values) or 'none'}\)", said)


def change(file: Path, content: bytes) -> None:
    file.unlink()  # not in place: this process may have it loaded
    file.write_bytes(content)


def damages() -> dict[str, Any]:
    def every(folder: Path, do: Any) -> None:
        for library in folder.glob("*.so"):
            do(library)

    table = "built.json"
    return {
        "a byte changed": lambda f: every(f, lambda s: change(s, s.read_bytes()[:-1] + b"\1")),
        "cut short": lambda f: every(f, lambda s: change(s, s.read_bytes()[:5000])),
        "empty": lambda f: every(f, lambda s: change(s, b"")),
        "no libraries": lambda f: every(f, Path.unlink),
        "no list": lambda f: (f / table).unlink(),
        "half a list": lambda f: change(f / table, (f / table).read_bytes()[:300]),
        "an empty list": lambda f: change(f / table, b'{"libraries": []}'),
        "another list": lambda f: change(f / table, b"[1, 2]"),
        "no library but by its digest": lambda f: every(f, as_whole),
        "binary": lambda f: change(f / table, bytes(range(256))),
    }


def as_whole(library: Path) -> None:
    """What is no library, with a digest that fits."""
    change(library, b"no library")
    rows = listed(library.parent)
    for row in rows["libraries"]:
        row["sha256"] = _refold_digest(b"no library")
    (library.parent / "built.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("damage", damages())
def test_what_is_damaged_is_told_in_a_line(copy: Path, damage: str) -> None:
    needs = here(copy)
    damages()[damage](copy)
    namespace = building._imported((copy.parent / "fast.py").read_text())
    file = str(copy.parent / "fast.py")
    said = _refold_built(copy.name, namespace._REFOLD_SOURCE, file, needs)
    assert isinstance(said, str) and str(copy) in said and "\n" not in said
    if "No such file" in said:  # it says which
        assert re.search(r"\((built\.json|\S+\.so): No such file", said)


def test_what_is_damaged_runs_the_original_and_says_so_once(copy: Path, tmp_path: Path) -> None:
    damages()["a byte changed"](copy)
    problem, said = use(copy.parent, tmp_path / "home")
    assert re.fullmatch(
        r"\S+\.so was changed after it was built; the kernels could not be compiled \(there is no"
        r" c\+\+\)",
        problem,
    )
    assert said == f"refold: the original forward was taken: {problem}"


def test_what_is_damaged_is_compiled_where_there_is_a_compiler(copy: Path, tmp_path: Path) -> None:
    damages()["no list"](copy)
    more = {n: os.environ[n] for n in os.environ if n.startswith(("CXX", "REFOLD"))}
    more |= {"PATH": os.environ["PATH"], "REFOLD_CACHE": str(tmp_path / "cache")}
    problem, said = use(copy.parent, tmp_path / "home", **more)
    assert problem == "None" and said.count("\n") == 0
    assert said.startswith("refold: the kernels built in") and said.endswith("found compiled")


def test_kernels_that_were_edited_are_not_those_that_were_built(copy: Path) -> None:
    file = copy.parent / "fast.py"
    file.write_text(file.read_text().replace('_REFOLD_KERNELS = r"""', '_REFOLD_KERNELS = r"""//'))
    assert "others than those that were built" in asked(copy)


def test_libraries_for_other_versions_stay(files: Path, copy: Path) -> None:
    """Each Python builds into one folder; what is there for it already is replaced."""
    rows = listed(copy)
    old = dict(rows["libraries"][0], file="older.so")
    (copy / "older.so").write_bytes(b"older")
    old["sha256"], old["needs"] = _refold_digest(b"older"), {**old["needs"], "PyTorch": "2.0"}
    cut = dict(old, file="cut.so", needs={**old["needs"], "PyTorch": "1.9"})
    (copy / "cut.so").write_bytes(b"cut")
    rows["libraries"] += [old, cut]
    (copy / "built.json").write_text(json.dumps(rows))
    content, needs = b"new", rows["libraries"][1]["needs"]
    new = Built(
        files / "fast.py",
        "",
        copy.name,
        rows["source"],
        (Library("new.so", content, needs, "c++"),),
    )
    building.write(new, copy.parent)
    kept = [row["file"] for row in listed(copy)["libraries"]]
    assert kept == ["new.so", rows["libraries"][0]["file"], "older.so"]
    assert {p.name for p in copy.iterdir()} == {*kept, "built.json"}
    # beside the file itself, which stays
    beside = dataclasses.replace(new, path=copy.parent / "fast.py", text="another")
    building.write(beside, copy.parent)
    assert (copy.parent / "fast.py").read_text() == ""
    other = Built(files / "fast.py", "", copy.name, "another source", new.libraries)
    building.write(other, copy.parent)
    assert {p.name for p in copy.iterdir()} == {"new.so", "built.json"}
    assert not list(copy.parent.glob(".*"))


def test_a_wheel_of_several_models(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = listed(copy)["libraries"]
    libraries = [Library(r["file"], (copy / r["file"]).read_bytes(), r["needs"], "") for r in rows]
    file = copy.parent / "fast.py"
    one = Built(file, file.read_text(), copy.name, listed(copy)["source"], tuple(libraries))
    monkeypatch.setattr(
        "refold.report.building.build", lambda path, *_: dataclasses.replace(one, path=path)
    )
    ask = ["build", str(file), "second.py", "-o", str(tmp_path), "--wheel", "My-models"]
    assert cli.main(ask) == 0
    (made,) = tmp_path.glob("*.whl")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert made.name.startswith(f"my_models-1.0-{python}-none-linux_")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    pip += ["--disable-pip-version-check", "--target", str(tmp_path / "site"), str(made)]
    subprocess.run(pip, check=True)
    assert use(tmp_path / "site", tmp_path / "home", "my_models.second") == ("None", "")
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert "my_models/fast.py" in names
    assert len([n for n in names if n.endswith(".so")]) == 2  # the same kernels lie there once


@pytest.mark.parametrize(
    "name", ["", "a b", "torch", "Refold", "json", "class", "-x", "../x", "1x"]
)
def test_a_wheel_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(BuildError, match="cannot be called"):
        package_of(name)


def test_a_wheel_needs_a_version(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no version"):
        wheel([], "models", "one", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gone.py"], "gone.py: No such file"),
        (["model.py"], "model.py has no kernels to compile"),
        (["fast.py", "--target", "cuda:sm_80"], "its targets are cpu:"),
        (["fast.py", "built/fast.py"], "two files are called fast.py"),
        (["fast.py", "-o", "model.py"], "model.py is no folder"),
        (["fast.py", "--wheel", "torch"], "cannot be called 'torch'"),
        (["fast_90.py", "--target", "cuda:sm_80"], "is for one kind of GPU only"),
        (["fast_80.py", "--target", "cpu:avx2"], "is for a GPU; its targets are"),
        (["fast.py", "fast_90.py", "--target", "tpu"], "is for the CPU; its targets are"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_usage_is_a_line(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(building, "nvcc", lambda: "nvcc")
    before = sorted(files.rglob("*"))
    assert cli.main(["build", *arguments]) == 1
    said = capsys.readouterr().err.strip()
    assert told in said and len(said.splitlines()) == 1
    assert sorted(files.rglob("*")) == before


def test_each_file_is_given_the_targets_that_it_is_for(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}

    def build(path: Path, targets: list[str], told: Any) -> Built:
        given[path.name] = targets
        return Built(path, "", "kernels", "", ())

    monkeypatch.setattr("refold.report.building.build", build)
    ask = [str(files / name) for name in ("fast.py", "fast_80.py")]
    ask += [f"--target={t}" for t in ("cpu:avx2", "cuda:sm_86", "cpu:any")]
    assert cli.main(["build", *ask, "-o", str(tmp_path / "built")]) == 0
    assert given == {"fast.py": ["cpu:avx2", "cpu:any"], "fast_80.py": ["cuda:sm_86"]}


def test_a_compiler_that_fails_is_a_line(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("false", "no-such-compiler"):
        monkeypatch.setenv("CXX", compiler)
        with pytest.raises(BuildError, match="does not compile"):
            building.build(files / "fast.py")


@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("name", ["fast_80", "fast_90"])
def test_files_for_gpus_are_built_where_there_is_none(files: Path, name: str) -> None:
    more = ["cuda:sm_86"] if name == "fast_80" else []
    made = building.build(files / f"{name}.py", more)
    (library,) = made.libraries
    code = {"fast_80": ("sm_80", "compute_80", "sm_86"), "fast_90": ("sm_90a",)}
    assert library.code == code[name]
    assert library.needs.keys() == {"Python", "driver"}
    assert re.fullmatch(r"CUDA \d+", library.needs["driver"])
    undefined = subprocess.run(
        ["nm", "-D", "--undefined-only", "/dev/stdin"],
        input=library.content, capture_output=True, check=False,
    ).stdout.decode()  # fmt: skip
    assert "torch" not in undefined and "cudaLaunch" not in undefined


def test_a_driver_runs_what_was_made_for_earlier_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(of: int) -> Any:
        def write(at: Any) -> int:
            at._obj.value = of
            return 0

        return lambda name: SimpleNamespace(cuDriverGetVersion=write)

    monkeypatch.setattr(built.ctypes, "CDLL", version(13010))
    assert built._refold_drivers()[:3] == ["CUDA 13", "CUDA 12", "CUDA 11"]
    monkeypatch.setattr(built.ctypes, "CDLL", version(0))
    assert built._refold_drivers() == []
    monkeypatch.undo()
    built._refold_drivers()  # with a driver or without one


def test_what_is_here_is_what_python_calls_its_extensions() -> None:
    (python,) = _refold_here()["Python"]
    assert python == sysconfig.get_config_var("SOABI")
