# Made by refold 0.1.0 for cpu. ModelNew computes the same function as Model.
#
# The original is s3_batchnorm_softmax.py.
# In train mode (equal for finite values):
#   1. mean-of-shifted (reals): The mean of shifted values is their mean plus that of the shifts.
#      mean((.. + gemm.bias), axes=-2) -> mean(.., axes=-2) + mean(gemm.bias, axes=-2)
#   2. equal-shifts-cancel (finite): What is added to both sides of a difference cancels: statistics
#      ignore a bias.
#      (.. + gemm.bias) - (.. + gemm.bias) -> linear(x, gemm.weight) - mean(.., axes=-2)
#   3. variance-ignores-shift (finite, 2 times): A shift that is the same for all values does not
#      change how they vary.
#      var((linear(x, gemm.weight) + gemm.bias), axes=-2) -> var(linear(x, gemm.weight), axes=-2)
#   4. vectors-first (reals, 2 times): Factors smaller than the value are multiplied with each other
#      first. (.. * ..) * bn.weight -> (.. - ..) * (.. * bn.weight)
#   5. scale-of-shifted (reals): A scale of a shifted value is a shift of the scaled value.
#      scale * ((.. * ..) + bn.bias) -> ((.. * ..) * scale) + (bn.bias * scale)
# In eval mode (equal in the reals: sums and products are taken in another order):
#   1. minus-parameter (bits): To subtract a parameter is to add its negative.
#      (.. + gemm.bias) - bn.running_mean -> (.. + gemm.bias) + neg(bn.running_mean)
#   2. shifts-meet (reals, 2 times): Two shifts after each other are one.
#      (.. + gemm.bias) + neg(bn.running_mean) -> linear(x, gemm.weight) + (gemm.bias + ..)
#   3. scale-of-shifted (reals, 3 times): A scale of a shifted value is a shift of the scaled value.
#   4. scales-meet (reals, 2 times): Two scales after each other are one.
#      (.. * ..) * bn.weight -> linear(x, gemm.weight) * (.. * bn.weight)
# Folded and packed parameters take 512 bytes in train mode, 1,024 bytes in eval mode beside 51,724
# of parameters.
#
# What refold wrote, all but Model, may be used without conditions (SPDX-License-Identifier: MIT-0).
# It needs PyTorch and a compiler, nothing else. In this order: Model, unchanged, on which ModelNew
# falls back; the folded parameters; the fast forward and ModelNew; what they assume; the kernels.

"""Linear, batch normalisation, a scale by one parameter, and softmax over the features."""

import torch
import torch.nn as nn

batch_size = 64
in_features = 96
out_features = 128


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features, eps=1e-5, momentum=0.1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gemm(x)
        x = self.bn(x)
        x = self.scale * x
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]

# --- Folded parameters: computed from parameters alone, in float64, rounded once. -----------------
def _refold_fold0(bn_bias, scale):
    """bn.bias * scale, of shape [128]."""
    return _refold_rounded(bn_bias.double() * scale.double(), torch.float32)


def _refold_fold1(bn_running_var, bn_weight, scale):
    """(rsqrt((bn.running_var + 1e-05)) * bn.weight) * scale, of shape [128]."""
    mul2 = ((bn_running_var.double() + 1e-05).rsqrt() * bn_weight.double()) * scale.double()
    return _refold_rounded(mul2, torch.float32)


def _refold_fold2(gemm_bias, bn_running_mean, bn_running_var, bn_weight, bn_bias, scale):
    """(((... * ...) * bn.weight) + bn.bias) * scale, of shape [128]."""
    rsqrt = (bn_running_var.double() + 1e-05).rsqrt()
    mul2 = ((gemm_bias.double() + (-bn_running_mean.double())) * rsqrt) * bn_weight.double()
    return _refold_rounded((mul2 + bn_bias.double()) * scale.double(), torch.float32)

# --- The fast forward, and the module. ------------------------------------------------------------
# An infinity among the inputs may give NaN here and an infinity there, or the other way round.
REFOLD_ASSUMES = "finite"


def _refold_train(self, rf_cache, x):
    """The fast forward in train mode."""
    folded_shift, gemm_weight, bn_weight, scale, gemm_bias = rf_cache.values
    n0 = x.shape[0]
    bn_running_mean, bn_running_var, bn_num_batches_tracked = rf_cache.states
    x = x.contiguous()
    product = _refold_empty((n0, 128), (128, 1), torch.float32)
    mean = _refold_empty((128,), (1,), torch.float32)
    factor = _refold_empty((128,), (1,), torch.float32)
    _refold_kernels.train_matmul0(x, gemm_weight, bn_weight, scale, bn_running_mean, gemm_bias,
        bn_running_var, product, mean, factor, bn_running_mean, bn_running_var,
        bn_num_batches_tracked, n0, 128, 96)
    torch.autograd.graph.increment_version(bn_num_batches_tracked)
    result = product  # in its place
    _refold_kernels.train_rows1(product, mean, factor, folded_shift, result, n0, 128)
    return result


def _refold_eval(self, rf_cache, x):
    """The fast forward in eval mode."""
    folded_factor, folded_shift, gemm_weight = rf_cache.values
    n0 = x.shape[0]
    x = x.contiguous()
    add = _refold_empty((n0, 128), (128, 1), torch.float32)
    max_ = _refold_empty((n0, 1), (1, 1), torch.float32)
    _refold_kernels.eval_matmul0(x, gemm_weight, folded_factor, folded_shift, add, max_, n0,
        128, 96)
    result = add  # in its place
    _refold_kernels.eval_rows1(add, max_, result, n0, 128)
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
        if self.training:
            rf_mode, rf_fast = "train", _refold_train
        else:
            rf_mode, rf_fast = "eval", _refold_eval
        rf_caches = self._refold_caches or _refold_own_caches(self)
        rf_found = _refold_prepare(self, rf_caches, rf_mode, x)
        if type(rf_found) is _RefoldCache:
            return rf_fast(self, rf_found, x)
        _refold_warn_fallback(rf_found)
        return super().forward(x)


# --- What is assumed of modules, parameters and buffers, and of the arguments of a call. ----------
# path, class, names of parameters, buffers and children, settings
_REFOLD_MODULES = (
    ("", "", "bn gemm scale", {}),
    ("gemm", "Linear", "bias weight", {"in_features": 96, "out_features": 128}),
    ("bn", "BatchNorm1d", "bias num_batches_tracked running_mean running_var weight",
        {"affine": True, "eps": 1e-05, "momentum": 0.1, "num_features": 128,
        "track_running_stats": True}),
)
_REFOLD_TENSORS = {
    "gemm.weight": ((128, 96), torch.float32), "bn.weight": ((128,), torch.float32),
    "scale": ((1,), torch.float32), "bn.bias": ((128,), torch.float32),
    "gemm.bias": ((128,), torch.float32), "bn.running_mean": ((128,), torch.float32),
    "bn.running_var": ((128,), torch.float32), "bn.num_batches_tracked": ((), torch.int64),
}
# values, as forward reads them: a parameter, what is folded of some, another form of a value
_REFOLD_MODES = {
    "train": {"values": {"folded_shift": (_refold_fold0, "bn.bias", "scale"),
        "gemm_weight": "gemm.weight", "bn_weight": "bn.weight", "scale": "scale",
        "gemm_bias": "gemm.bias"}, "writes": ("bn.running_mean", "bn.running_var",
        "bn.num_batches_tracked")},
    "eval": {"values": {"folded_factor": (_refold_fold1, "bn.running_var", "bn.weight",
        "scale"), "folded_shift": (_refold_fold2, "gemm.bias", "bn.running_mean", "bn.running_var",
        "bn.weight", "bn.bias", "scale"), "gemm_weight": "gemm.weight"}},
}


def _refold_misfit(self, x):
    """Why the kernels are for other arguments than these, or None."""
    return _refold_argument("x", x, (None, 96), torch.float32, "cpu")


# --- This model's kernels: compiled at the first import, then found where they lie. --------------
_REFOLD_KERNELS = r"""
namespace rf {
struct TrainMatmul0 : MatmulBody {  // linear, mean, var, add, rsqrt, mul
  const float *bn_weight, *scale, *bn_running_mean, *gemm_bias, *bn_running_var;
  float *product, *mean, *factor, *new_bn_running_mean, *new_bn_running_var;
  long* bn_num_batches_tracked;
  long width, count;
  template <class C> RF_FN void store(long row, C col, Vec v) const {
    put(product, row * width, col, v);
  }
  using ColumnMonoids = List<Moments>;
  struct Column { float mean, var, var2; };
  RF_FN void set_column(Step<0>, Column& c, const MomentsState& s) const {
    c.mean = s.mean;
    c.var = s.m2 / float(count);
    c.var2 = s.m2 / (float(count) - 1.0f);
  }
  RF_FN void finalize_column(const Column& c, long col) const {
    put(mean, col, c.mean);
    const auto mul1 = rsqrt(c.var + 1e-05f) * column<float>(bn_weight, col);
    const auto mul2 = (c.mean + column<float>(gemm_bias, col)) * 0.1f;
    const auto add1 = column<float>(bn_running_mean, col) * 0.9f + mul2;
    const auto add2 = column<float>(bn_running_var, col) * 0.9f + c.var2 * 0.1f;
    put(factor, col, mul1 * scalar<float>(scale));
    put(new_bn_running_mean, col, add1);
    put(new_bn_running_var, col, add2);
    if (col == 0) *bn_num_batches_tracked += 1;
  }
};

struct TrainRows1 : RowsBody {  // sub, mul, add, max, exp, sum, div
  const float* product;  // linear(x, gemm.weight)
  const float* mean;  // mean(linear(x, gemm.weight), axes [-2])
  const float* factor;  // (... * bn.weight) * scale
  const float* folded_shift;  // bn.bias * scale
  float* result;
  long width;
  struct Row { float max, sum; };
  using Monoids = List<Max, Sum>;
  template <class V, class C> RF_FN V term(Step<0>, const Row& r, long row, C col) const {
    const auto sub1 = full<V>(product, row * width, col) - column<V>(mean, col);
    return sub1 * column<V>(factor, col) + column<V>(folded_shift, col);
  }
  RF_FN void set(Step<0>, Row& r, long row, float value) const { r.max = value; }
  template <class V, class C> RF_FN V term(Step<1>, const Row& r, long row, C col) const {
    return exp(term<V>(Step<0>{}, r, row, col) - lanes<V>(r.max));
  }
  RF_FN void set(Step<1>, Row& r, long row, float value) const { r.sum = value; }
  template <class V, class C> RF_FN void store(const Row& r, long row, C col) const {
    put(result, row * width, col, term<V>(Step<1>{}, r, row, col) / lanes<V>(r.sum));
  }
};

struct EvalMatmul0 : MatmulBody {  // linear, mul, add, max
  const float* folded_factor;  // (... * bn.weight) * scale
  const float* folded_shift;  // (... + bn.bias) * scale
  float *add, *max_;
  long width;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    return acc * column<V>(folded_factor, col) + column<V>(folded_shift, col);
  }
  template <class C> RF_FN void store(long row, C col, Vec v) const {
    put(add, row * width, col, v);
  }
  using RowMonoids = List<Max>;
  RF_FN void finalize_row(long row, const float* results) const { put(max_, row, results[0]); }
};

struct EvalRows1 : RowsBody {  // sub, exp, sum, div
  const float* add;  // (... * ...) + (... * scale)
  const float* max_;  // max((... + ...), axes [-1])
  float* result;
  long width;
  struct Row { float sum; };
  using Monoids = List<Sum>;
  template <class V, class C> RF_FN V term(Step<0>, const Row& r, long row, C col) const {
    return exp(full<V>(add, row * width, col) - scalar<V>(max_ + row));
  }
  RF_FN void set(Step<0>, Row& r, long row, float value) const { r.sum = value; }
  template <class V, class C> RF_FN void store(const Row& r, long row, C col) const {
    put(result, row * width, col, term<V>(Step<0>{}, r, row, col) / lanes<V>(r.sum));
  }
};

// How Python calls them: a name, what is given in order, and what runs.
RF_PRODUCT(train_matmul0, (float* a, float* w, Members<TrainMatmul0, 11> body, long rows,
    long width, long depth),
    rf::matmul(body.sized(width, rows), a, w, rows, width, depth))
RF_KERNEL(train_rows1, (Members<TrainRows1, 5> body, long rows, long width),
    rf::rows(body.sized(width), rows, width))
RF_PRODUCT(eval_matmul0, (float* a, float* w, Members<EvalMatmul0, 4> body, long rows, long width,
    long depth),
    rf::matmul(body.sized(width), a, w, rows, width, depth))
RF_KERNEL(eval_rows1, (Members<EvalRows1, 3> body, long rows, long width),
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
    if self.training:
        rf_mode, rf_fast = "train", _refold_train
    else:
        rf_mode, rf_fast = "eval", _refold_eval
    rf_found = _refold_prepare(self, rf_caches, rf_mode, x)
    if type(rf_found) is _RefoldCache:
        return rf_fast(self, rf_found, x)
    return _RefoldReason(rf_found)
