# Made by refold 0.1.0 for cpu. ModelNew computes the same function as Model.
#
# The original is s1_avgpool_gelu_max.py.
# In every mode (equal in the reals: sums and products are taken in another order):
#   1. pool-of-reshaped (bits): Pooling along the last axis does not see how the others are
#      arranged. avg_pool(.., size=16) -> reshape(.., shape=s0,1,8)
#   2. pool-of-shifted (reals): The pooling of shifted values is their pooling plus that of the
#      shifts.
#   3. pool-through-linear (reals): The pooling of output features is one product with that of the
#      weight's rows.
#      avg_pool(linear(x, matmul.weight), size=16) -> linear(x, permute(avg_pool(.., size=16)))
#   4. reshape-of-reshape (bits): Only the last of two reshapes counts.
#      reshape(reshape(.., shape=s0,1,8), shape=s0,8) -> reshape((.. + ..), shape=s0,8)
#   5. reshape-to-itself (bits): The shape is already this one.
#      reshape((.. + ..), shape=s0,8) -> linear(x, ..) + avg_pool(matmul.bias, size=16)
#   6. max-of-positively-scaled (reals): A factor that is not negative does not change which value
#      is the max. max((gelu(..) * 2), axes=-1) -> max(gelu(..), axes=-1) * 2
# Folded and packed parameters take 3,104 bytes beside 49,664 of parameters.
#
# What refold wrote, all but Model, may be used without conditions (SPDX-License-Identifier: MIT-0).
# It needs PyTorch and a compiler, nothing else. In this order: Model, unchanged, on which ModelNew
# falls back; the folded parameters; the fast forward and ModelNew; what they assume; the kernels.

"""Linear, average pooling over the features, GELU, a scale, and the maximum of each row."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_features = 96
out_features = 128
pool_kernel_size = 16
scale_factor = 2.0


class Model(nn.Module):
    def __init__(
        self, in_features: int, out_features: int, pool_kernel_size: int, scale_factor: float
    ) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.avg_pool = nn.AvgPool1d(kernel_size=pool_kernel_size)
        self.scale_factor = scale_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.matmul(x)
        x = self.avg_pool(x.unsqueeze(1)).squeeze(1)
        x = F.gelu(x)
        x = x * self.scale_factor
        return torch.max(x, dim=1).values


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, pool_kernel_size, scale_factor]

# --- Folded parameters: computed from parameters alone, in float64, rounded once. -----------------
def _refold_fold0(matmul_weight):
    """permute(avg_pool(permute(matmul.weight))), of shape [8, 96]."""
    mean = matmul_weight.double().reshape((8, 16, 96)).mean((-2,), keepdim=True)
    return mean.reshape((8, 96)).to(torch.float32).contiguous()


def _refold_fold1(matmul_bias):
    """avg_pool(matmul.bias), of shape [8]."""
    reshape2 = matmul_bias.double().reshape((8, 16)).mean((-1,), keepdim=True).reshape((8,))
    return reshape2.to(torch.float32)

# --- The fast forward, and the module. ------------------------------------------------------------
# An infinity among the inputs may give NaN here and an infinity there, or the other way round.
REFOLD_ASSUMES = "finite"


def _refold_both(self, rf_cache, x):
    """The fast forward."""
    folded_weight, folded_shift = rf_cache.values
    n0 = x.shape[0]
    x = x.contiguous()
    mul = _refold_empty((n0, 1), (1, 1), torch.float32)
    _refold_kernels.matmul0(x, folded_weight, folded_shift, mul, n0, 8, 96)
    result = mul.reshape((n0,))
    return result


class ModelNew(Model):
    """Model, computed by the kernels below wherever they compute the same function.

    Assumed, and checked at every call:
    - x is a dense torch.float32 tensor of shape [n, 96].
    - parameters have the shapes and dtypes, modules the classes and settings that they had
      when the kernels were made; there are no hooks, and no gradient is wanted.
    Any other call takes the original forward and says why, once.
    """

    _refold_made = True
    _refold_caches = None  # what is folded of the parameters; refold_refresh() forgets it

    def forward(self, x):
        if _refold_is_compiling():
            return super().forward(x)
        rf_caches = self._refold_caches or _refold_own_caches(self)
        rf_found = _refold_prepare(self, rf_caches, "both", x)
        if type(rf_found) is _RefoldCache:
            return _refold_both(self, rf_found, x)
        _refold_warn_fallback(rf_found)
        return super().forward(x)


# --- What is assumed of modules, parameters and buffers, and of the arguments of a call. ----------
# path, class, names of parameters, buffers and children, settings
_REFOLD_MODULES = (
    ("", "", "avg_pool matmul", {"scale_factor": 2.0}),
    ("matmul", "Linear", "bias weight", {"in_features": 96, "out_features": 128}),
    ("avg_pool", "AvgPool1d", "", {"ceil_mode": False, "count_include_pad": True,
        "kernel_size": (16,), "padding": (0,), "stride": (16,)}),
)
_REFOLD_TENSORS = {
    "matmul.weight": ((128, 96), torch.float32), "matmul.bias": ((128,), torch.float32),
}
# values, as forward reads them: a parameter, what is folded of some, another form of a value
_REFOLD_MODES = {
    "both": {"values": {"folded_weight": (_refold_fold0, "matmul.weight"),
        "folded_shift": (_refold_fold1, "matmul.bias")}, "apart": None},
}


def _refold_misfit(self, x):
    """Why the kernels are for other arguments than these, or None."""
    return _refold_argument("x", x, (None, 96), torch.float32, "cpu")


# --- This model's kernels: compiled at the first import, then found where they lie. --------------
_REFOLD_KERNELS = r"""
namespace rf {
struct Matmul0 : MatmulBody {  // linear, add, gelu, max, mul
  const float* folded_shift;  // avg_pool(matmul.bias)
  float* mul;
  long width;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    return gelu(acc + column<V>(folded_shift, col));
  }
  static constexpr bool kStores = false;
  using RowMonoids = List<Max>;
  RF_FN void finalize_row(long row, const float* results) const {
    put(mul, row, results[0] * 2.0f);
  }
};

// How Python calls them: a name, what is given in order, and what runs.
RF_PRODUCT(matmul0, (float* a, float* w, Members<Matmul0, 2> body, long rows, long width,
    long depth),
    rf::matmul(body.sized(width), a, w, rows, width, depth))
}  // namespace rf
"""

# ==============================================================================================
# Below: the same in every file, but for the names of a call's arguments.
# ==============================================================================================
_REFOLD_HEADERS = r"""
#define PY_SSIZE_T_CLEAN
// <call.h>

#if !defined(RF_UNIT) || RF_UNIT == 0
// <contents.h>

// <entries.h>

// <look.h>

// <watch.h>

#endif
// Run: a kernel from Python.
//
//   RF_KERNEL(name, (parameters), call)   a function of Python that runs the call without the interpreter's lock
//   RF_BESIDE(...), RF_PRODUCT(...)       the same, but for where it is compiled
//
// A file may be compiled as two units side by side. RF_UNIT is 0 in one, with RF_KERNEL and what follows a product, and
// 1 in the other, with RF_BESIDE and what all products share. Where it is not defined, one compiler reads all.
#include <Python.h>

#include <new>

// Runs a kernel without the interpreter's lock. What its threads throw comes here.
template <class F> static PyObject* rf_run(F f) {
  bool enough = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    f();
  } catch (const std::bad_alloc&) {
    enough = false;
  }
  Py_END_ALLOW_THREADS
  if (!enough) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

#define RF_WHOLE(name, parameters, ...)                                               \
  static void name##_of parameters { __VA_ARGS__; }                                   \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {    \
    return rf_called(name##_of, 0, args, n, [](const auto& given, PyObject* const*) { \
      return rf_run([&] { std::apply(name##_of, given); });                           \
    });                                                                               \
  }                                                                                   \
  RF_METHOD(name, name##_called)
#ifndef RF_UNIT
#define RF_KERNEL RF_WHOLE
#define RF_BESIDE RF_WHOLE
#define RF_PRODUCT RF_WHOLE
#elif RF_UNIT == 0
#define RF_KERNEL RF_WHOLE
#define RF_BESIDE(...)
#define RF_PRODUCT RF_WHOLE
#else
#define RF_KERNEL(...)
#define RF_BESIDE RF_WHOLE
#define RF_PRODUCT(name, parameters, ...) [[gnu::used]] static void name##_of parameters { __VA_ARGS__; }
#endif

// <cpu/vectors.h>

// <cpu/functions.h>

// <cpu/lanes.h>

// <cpu/../folded.h>

// <cpu/monoid.h>

// <cpu/parallel.h>

// <cpu/columns.h>

// <cpu/gemm.h>

// <cpu/skinny.h>

// <cpu/rows.h>

// <cpu/matmul.h>
"""
_REFOLD_SOURCE = _REFOLD_HEADERS + _REFOLD_KERNELS

_REFOLD_NAME = "refold_cpu_HASH"
# -fopenmp only compiles: at load time the threads are those of PyTorch's own runtime;
# hidden: two modules may have functions of one name, the loader would take one for both;
# off: what is computed twice has the same bits twice (kernels fuse where they say fmadd)
_REFOLD_FLAGS = [
    "-O3", "-std=c++17", "-fopenmp", "-fno-math-errno", "-ffp-contract=off", "-fvisibility=hidden"
]
# what more the compiler is told for processors of each kind, by PyTorch's names, the best first
_REFOLD_LEVELS = {
    "AVX512": "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma -mf16c"
    " -DCPU_CAPABILITY=AVX512 -DCPU_CAPABILITY_AVX512",
    "AVX2": "-mavx2 -mfma -mf16c -DCPU_CAPABILITY=AVX2 -DCPU_CAPABILITY_AVX2",
    "DEFAULT": "-std=c++20",
}


def _refold_compiled_for(level, folder):
    """Compile the kernels for processors of a kind into a folder; the path of the library."""
    flags = [*_REFOLD_FLAGS, *_REFOLD_LEVELS[level].split()]
    return _refold_compiled_cpp(_REFOLD_NAME, _REFOLD_SOURCE, flags, folder, 2)


def _refold_build():
    """The compiled kernels, and None; or None, and why there are none."""
    levels, level = list(_REFOLD_LEVELS), torch.backends.cpu.get_cpu_capability()
    levels = levels[levels.index(level):] if level in levels else ["DEFAULT"]
    return _refold_library(
        _REFOLD_NAME, _REFOLD_SOURCE, (_REFOLD_FLAGS, levels[0]),
        lambda folder: _refold_loaded(_REFOLD_NAME, _refold_compiled_for(levels[0], folder)),
        globals().get("__file__"),
        _refold_here(processor=levels, PyTorch=[_refold_torch_release()]),
    )


_refold_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)
if _refold_empty is None:

    def _refold_empty(sizes, strides, dtype):
        return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")


def _refold_unsupported_device(device):
    """Why the kernels cannot run on a device, or None."""
    return None


def _refold_folds_ready(cache):
    """What is left to do when folded parameters were computed: nothing on the CPU."""

# --- The runtime. ---------------------------------------------------------------------------------
# <runtime>


def _refold_prepare(self, rf_caches, rf_mode, x):
    """What the kernels read of the parameters; or, as text, why the original forward is taken."""
    rf_cache = rf_caches.get(rf_mode)
    try:
        if rf_cache is not None and x.is_nested is False and rf_cache.fits(x) and not (
            _refold_grad_enabled() or _refold_forward_ad._current_level >= 0
            or _refold_function_modes() and _refold_is_watched(rf_cache.device, "cpu")
        ) and _refold_kernels.unchanged(*rf_cache.watched) and rf_cache.laid(*rf_cache.tensors):
            return rf_cache  # the last call was like this one
    except AttributeError:
        pass  # what is no tensor (of a nested one PyTorch's guards end the process)
    return (
        _refold_problem or _refold_traced() or _refold_misfit(self, x)
        or _refold_examined(self, rf_caches, rf_mode, _refold_file, (x,))
    )


_refold_kernels, _refold_problem = _refold_build()
ModelNew.refold_refresh = _refold_refresh
_refold_file = _RefoldFile("cpu", globals())


def _refold_attempt(self, rf_caches, x):
    """forward's result, or a _RefoldReason why the original forward is taken (for refold.optimize)."""
    rf_found = _refold_prepare(self, rf_caches, "both", x)
    if type(rf_found) is _RefoldCache:
        return _refold_both(self, rf_found, x)
    return _RefoldReason(rf_found)
