"""Global switches of PyTorch that a forward must leave as it found them."""

from __future__ import annotations

import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.multiprocessing

from refold.judge.worker.leaves import digest

File = TypeVar("File")
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK)
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2),
)
DRAWN = "PyTorch's generator of random numbers"
HUSHED = "warnings that are all ignored"
BY_THE_WAY = (HUSHED, "callbacks of the garbage collection")  # a late import changes them
# what libraries set for themselves, when they are first used
_LIBRARIES = (
    *("TORCH", "_TORCH", "PYTORCH", "TRITON", "CUDA", "NCCL", "KINETO", "KMP_", "MKL_", "GOMP_"),
    *("REFOLD", "PYTEST"),
)
_NUMPY = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}  # as it is made
_DECIMALS = "28 digits, ROUND_HALF_EVEN"  # as Python makes the context
_KERNELS = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
_MIXED = "no single one: set for one backend alone"
# what files set for themselves where they begin: a candidate may set what its reference sets
_SET_BY_FILES = (
    *("float32 matmul precision", "cuda.matmul.allow_tf32", "cudnn.allow_tf32", "deterministic"),
    *("cudnn.benchmark", "cudnn.deterministic", "cudnn.enabled", "default dtype"),
    *("fp16 reduced reduction", "bf16 reduced reduction", "attention kernels"),
)


def snapshot() -> dict[str, Any]:
    """Every switch by name."""
    backends, hooks = torch.backends, vars(torch.nn.modules.module)
    shared: Any = torch.multiprocessing
    return {
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "grad enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "float32 matmul precision": _precision(),
        "cuda.matmul.allow_tf32": backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": backends.cudnn.allow_tf32,
        "cudnn.benchmark": backends.cudnn.benchmark,
        "cudnn.deterministic": backends.cudnn.deterministic,
        "cudnn.enabled": backends.cudnn.enabled,
        "mkldnn.enabled": backends.mkldnn.enabled if hasattr(backends.mkldnn, "enabled") else None,
        "fp16 reduced reduction": str(backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "bf16 reduced reduction": str(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast cpu": torch.is_autocast_enabled("cpu"),
        "autocast cuda": torch.is_autocast_enabled("cuda"),
        "anomaly": torch.is_anomaly_enabled(),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "saved tensors' hooks": torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
        "modules' hooks": sum(len(hooks.get(name, ())) for name in _HOOKS),
        "backward in threads": torch._C._is_multithreading_enabled(),
        "attention kernels": [
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
            torch._C._get_cudnn_sdp_enabled(),
        ],
        "fast path of attention": backends.mha.get_fastpath_enabled(),
        "garbage collection": (gc.isenabled(), gc.get_threshold()),
        "callbacks of the garbage collection": len(gc.callbacks),
        "handlers of signals": [str(signal.getsignal(s)) for s in _SIGNALS],
        HUSHED: _hushed(),
        "exceptions that nobody catches": [
            str(hook) for hook in (sys.excepthook, sys.unraisablehook, threading.excepthook)
        ],
        "where warnings are shown": str(warnings.showwarning),
        "standard streams": [id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "patience of sockets": socket.getdefaulttimeout(),
        "locale": locale.setlocale(locale.LC_ALL),
        "time zone": time.tzname,
        "decimal numbers": _decimals(),
        "how tensors are shared": shared.get_sharing_strategy(),
        "checks of sparse tensors": torch._C._check_sparse_tensor_invariants(),
        "functions that trace": (str(sys.gettrace()), str(sys.getprofile())),
        "warnings again and again": torch.is_warn_always_enabled(),
        "new memory filled": torch._C._get_deterministic_fill_uninitialized_memory(),
        "limits of the process": [resource.getrlimit(kind) for kind in _LIMITS],
        "directory": os.getcwd(),
        "how tensors are printed": vars(torch._tensor_str.PRINT_OPTS).copy(),
        "recursion limit": _depth(),
        "switch interval of threads": sys.getswitchinterval(),
        "NumPy's errors": _numpy(),
        "environment": _environment(),
        "rights of new files": _umask(),
        "logging": (logging.root.manager.disable, logging.root.level),
        "operators of PyTorch's": _overriding(),
        "flush denormal": _LEAST * 1.0 == 0.0,  # of this thread, whoever multiplies
    }


def set_by_files() -> dict[str, Any]:
    """The switches that a file may have set as it was imported, in the process of the reference."""
    found = snapshot()
    return {name: found[name] for name in _SET_BY_FILES}


_SEED = 20_011  # under which files are imported


def imported(load: Callable[[], File]) -> tuple[File, str | None]:
    """A file, and where its import left PyTorch's generator; None for where it was. Files are
    imported under one seed: a candidate may seed and draw as its reference's file does."""
    torch.default_generator.manual_seed(_SEED)
    before = torch.get_rng_state()
    file, after = load(), torch.get_rng_state()
    return file, None if torch.equal(before, after) else digest(after)


_LEAST = 5e-324
_environments: list[tuple[dict[Any, Any], dict[str, str]]] = []  # the last, as bytes and as text


def _environment() -> dict[str, str]:
    """Without what libraries set. To decode it costs more than to see that it is as it was."""
    raw = vars(os.environ)["_data"]
    if not _environments or _environments[0][0] != raw:
        text = {k: v for k, v in os.environ.items() if not k.startswith(_LIBRARIES)}
        _environments[:] = [(dict(raw), text)]
    return dict(_environments[0][1])


_ORDINARY: set[str] = set()  # names that are known to override nothing: thousands
_found: list[tuple[set[str], list[str]]] = []  # the names that there were, and which override


def _overriding() -> list[str]:
    if _found and _found[0][0] == torch.library._impls:
        return list(_found[0][1])
    new = torch.library._impls - _ORDINARY
    found = sorted(name for name in new if _overrides(name))
    _ORDINARY.update(new.difference(found))
    _found[:] = [(set(torch.library._impls), found)]
    return list(found)


def _overrides(name: str) -> bool:
    """Whether a Python function in the place of a kernel of PyTorch's; its own add other kinds."""
    return name.startswith("aten/") and name.endswith(_KERNELS)


_DEPTH = sys.getrecursionlimit()  # before any candidate
_INDUCTOR, _INDUCTORS = "torch._inductor.compile_fx", 2000


def _depth() -> int:
    """The limit of recursion; that which PyTorch's own compiler sets, wherever it compiles, counts
    as the one before."""
    limit = sys.getrecursionlimit()
    return _DEPTH if limit == _INDUCTORS > _DEPTH and _INDUCTOR in sys.modules else limit


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before


def _hushed() -> int:
    """How many kinds of warnings are ignored whatever they say and wherever they come from."""
    return len(
        {
            category
            for action, text, category, module, line in warnings.filters
            if action == "ignore" and not text and not module and not line
            if issubclass(UserWarning, category)
        }
    )


def _numpy() -> dict[str, str]:
    numpy: Any = sys.modules.get("numpy")
    return dict(_NUMPY) if numpy is None else dict(numpy.geterr())


def _decimals() -> str:
    decimal: Any = sys.modules.get("decimal")
    if decimal is None:
        return _DECIMALS
    context = decimal.getcontext()
    return f"{context.prec} digits, {context.rounding}"


def _precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # as the message says: old and new ways to set it were mixed
        return _MIXED


_HOOKS = [
    name
    for name, value in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and isinstance(value, dict)
]


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """``name: before -> after`` for each switch that moved."""
    moved = [k for k, v in before.items() if after[k] != v]
    return [f"{k}: {_shown(before[k], after[k])} -> {_shown(after[k], before[k])}" for k in moved]


def _shown(value: Any, other: Any) -> Any:
    """Of a dict what is other in the other one."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {k: v for k, v in value.items() if k not in other or other[k] != v}
    return value
