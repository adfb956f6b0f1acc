# Made by refold 0.1.0 for cpu. ModelNew computes the same function as Model.
#
# The original is s0_sum_chain.py.
# In every mode (equal in the reals: sums and products are taken in another order):
#   1. sum-of-shifted (reals): The sum of shifted values is their sum plus that of the shifts.
#      sum((.. + linear.bias), axes=-1) -> sum(.., axes=-1) + sum(linear.bias, axes=-1)
#   2. sum-through-linear (reals): The sum of output features is one product with that of the
#      weight's rows.
#      sum(linear(x, linear.weight), axes=-1) -> linear(x, sum(linear.weight, axes=-2))
#   3. max-of-one (bits): The max over a single element is that element.
#      max((.. + ..), axes=-1) -> linear(x, ..) + sum(linear.bias, axes=-1)
#   4. mean-of-one (reals): The mean over a single element is that element.
#      mean((.. + ..), axes=-1) -> linear(x, ..) + sum(linear.bias, axes=-1)
#   5. logsumexp-of-one (reals): The logsumexp over a single element is that element.
#      logsumexp((.. + ..), axes=-1) -> linear(x, ..) + sum(linear.bias, axes=-1)
# Folded and packed parameters take 388 bytes beside 49,664 of parameters.
#
# What refold wrote, all but Model, may be used without conditions (SPDX-License-Identifier: MIT-0).
# It needs PyTorch and a compiler, nothing else. In this order: Model, unchanged, on which ModelNew
# falls back; the folded parameters; the fast forward and ModelNew; what they assume; the kernels.

"""Linear, then a chain of row reductions: sum, max, mean, logsumexp, logsumexp."""

import torch
import torch.nn as nn

batch_size = 64
in_features = 96
out_features = 128


class Model(nn.Module):
    """The sum leaves one element a row; each reduction after it runs over that one element."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        x = torch.sum(x, dim=1, keepdim=True)
        x = torch.max(x, dim=1, keepdim=True)[0]
        x = torch.mean(x, dim=1, keepdim=True)
        x = torch.logsumexp(x, dim=1, keepdim=True)
        return torch.logsumexp(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]

# --- Folded parameters: computed from parameters alone, in float64, rounded once. -----------------
def _refold_fold0(linear_weight):
    """sum(linear.weight, axes [-2]), of shape [96]."""
    sum_ = linear_weight.sum((-2,), keepdim=True, dtype=torch.float64)
    return sum_.to(torch.float32).reshape((96,))


def _refold_fold1(linear_bias):
    """sum(linear.bias, axes [-1]), of shape [1]."""
    return linear_bias.sum((-1,), keepdim=True, dtype=torch.float64).to(torch.float32)

# --- The fast forward, and the module. ------------------------------------------------------------
# An infinity among the inputs may give NaN here and an infinity there, or the other way round.
REFOLD_ASSUMES = "finite"


def _refold_both(self, rf_cache, x):
    """The fast forward."""
    folded_weight, folded_shift = rf_cache.values
    n0 = x.shape[0]
    x = x.contiguous()
    result = _refold_empty((n0, 1), (1, 1), torch.float32)
    _refold_kernels.rows0(x, folded_weight, folded_shift, result, n0, 96)
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
    ("", "", "linear", {}),
    ("linear", "Linear", "bias weight", {"in_features": 96, "out_features": 128}),
)
_REFOLD_TENSORS = {
    "linear.weight": ((128, 96), torch.float32), "linear.bias": ((128,), torch.float32),
}
# values, as forward reads them: a parameter, what is folded of some, another form of a value
_REFOLD_MODES = {
    "both": {"values": {"folded_weight": (_refold_fold0, "linear.weight"),
        "folded_shift": (_refold_fold1, "linear.bias")}, "apart": None},
}


def _refold_misfit(self, x):
    """Why the kernels are for other arguments than these, or None."""
    return _refold_argument("x", x, (None, 96), torch.float32, "cpu")


# --- This model's kernels: compiled at the first import, then found where they lie. --------------
_REFOLD_KERNELS = r"""
namespace rf {
struct Rows0 : RowsBody {  // linear, add
  const float* x;
  const float* folded_weight;  // sum(linear.weight, axes [-2])
  const float* folded_shift;  // sum(linear.bias, axes [-1])
  float* result;
  long width;
  struct Row { float product, add; };
  using Monoids = List<Sum>;
  template <class V, class C> RF_FN V term(Step<0>, const Row& r, long row, C col) const {
    return full<V>(x, row * width, col) * column<V>(folded_weight, col);
  }
  RF_FN void set(Step<0>, Row& r, long row, float value) const {
    r.product = value;
    r.add = r.product + scalar<float>(folded_shift);
  }
  static constexpr bool kStores = false;
  static constexpr bool kFinalizes = true;
  RF_FN void finalize(const Row& r, long row) const { put(result, row, r.add); }
};

// How Python calls them: a name, what is given in order, and what runs.
RF_KERNEL(rows0, (Members<Rows0, 4> body, long rows, long width),
    rf::rows(body.sized(width), rows, width))
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

// <cpu/rows.h>
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
    return _refold_compiled_cpp(_REFOLD_NAME, _REFOLD_SOURCE, flags, folder)


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
