"""CUDA's compiler from pip's wheels, where there is no other."""

import glob
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence

import torch


def _refold_other_nvcc() -> str | None:
    """The path of an nvcc that PyTorch finds: on PATH, or where CUDA_HOME and the usual place have
    it."""
    homes = os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"
    held = (os.path.join(home, "bin", "nvcc") for home in homes if home)
    return shutil.which("nvcc") or next((path for path in held if os.path.exists(path)), None)


def _refold_pip_nvcc() -> str | None:
    """The path of the nvcc of pip's nvidia-cuda-nvcc (CUDA 13 or later), of PyTorch's own release
    where that is known. None where there is none, or another is at hand."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or _refold_other_nvcc() is not None:
        return None
    release = f"cu{(torch.version.cuda or '*').partition('.')[0]}"
    found = (
        glob.glob(f"{root}/{release}/bin/nvcc") for root in spec.submodule_search_locations or ()
    )
    return max(
        (path for paths in found for path in paths if os.access(path, os.X_OK)), default=None
    )


def _refold_compiled_cuda(
    nvcc: str, name: str, source: str, flags: Sequence[str], folder: str
) -> str:
    """Compile CUDA for this Python into a folder; the path of the library, with CUDA's runtime in
    it: PyTorch may have been made with another release. Raises RuntimeError with what was said."""
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

    text, made = (os.path.join(folder, f"{name}{end}") for end in (".cu", ".so"))
    with open(text, "w") as file:
        file.write(source)
    lib = os.path.join(os.path.dirname(os.path.dirname(nvcc)), "lib")  # of a wheel
    command = [nvcc, *COMMON_NVCC_FLAGS, *flags, "-shared", "-cudart=static", f"-L{lib}"]
    command += ["-Xcompiler=-fPIC", f"-DTORCH_EXTENSION_NAME={name}"]
    command += [f"-I{sysconfig.get_path('include')}", "-o", made, text]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise RuntimeError(done.stderr + done.stdout)
    return made
