# Made by refold 0.1.0 for cuda:sm_90. ModelNew computes the same function as Model.
#
# The original is s2_scale_batchnorm.py.
# In train mode (equal for finite values):
#   1. scale-of-shifted (reals): A scale of a shifted value is a shift of the scaled value.
#      (.. + gemm.bias) * scale -> (.. * scale) + (gemm.bias * scale)
#   2. mean-of-shifted (reals, 2 times): The mean of shifted values is their mean plus that of the
#      shifts. mean((.. + ..), axes=-2) -> mean(.., axes=-2) + mean(.., axes=-2)
#   3. mean-of-scaled (reals, 2 times): The mean of values scaled alike is their mean, scaled.
#      mean((.. * scale), axes=-2) -> mean(.., axes=-2) * scale
#   4. equal-shifts-cancel (finite): What is added to both sides of a difference cancels: statistics
#      ignore a bias.
#   5. common-factor (reals): A factor of both sides of a difference is a factor of the difference.
#      (.. * scale) - (.. * scale) -> (.. - ..) * scale
#   6. variance-ignores-shift (finite, 2 times): A shift that is the same for all values does not
#      change how they vary. var((.. + ..), axes=-2) -> var((.. * scale), axes=-2)
#   7. variance-of-scaled (reals, 2 times): A factor that is the same for all values enters their
#      variance squared. var((.. * scale), axes=-2) -> var(.., axes=-2) * square(scale)
#   8. vectors-first (reals, 2 times): Factors smaller than the value are multiplied with each other
#      first. (.. * scale) * rsqrt(..) -> (.. - ..) * (scale * ..)
# In eval mode (equal in the reals: sums and products are taken in another order):
#   1. scale-of-shifted (reals, 3 times): A scale of a shifted value is a shift of the scaled value.
#   2. minus-parameter (bits): To subtract a parameter is to add its negative.
#      (.. + ..) - bn.running_mean -> (.. + ..) + neg(bn.running_mean)
#   3. shifts-meet (reals, 2 times): Two shifts after each other are one.
#      (.. + ..) + neg(bn.running_mean) -> (.. * scale) + (.. + ..)
#   4. scales-meet (reals, 2 times): Two scales after each other are one.
#      (.. * scale) * rsqrt(..) -> linear(x, gemm.weight) * (scale * ..)
# Folded and packed parameters take 67,125,248 bytes in train mode, 67,141,632 bytes in eval mode
# beside 67,207,176 of parameters.
#
# What refold wrote, all but Model, may be used without conditions (SPDX-License-Identifier: MIT-0).
# It needs PyTorch and a compiler, nothing else. In this order: Model, unchanged, on which ModelNew
# falls back; the folded parameters; the fast forward and ModelNew; what they assume; the kernels.

"""Linear, a scale per feature, and batch normalisation."""

import torch
import torch.nn as nn

batch_size = 16384
in_features = 4096
out_features = 4096


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bn = nn.BatchNorm1d(out_features, eps=1e-5, momentum=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gemm(x)
        x = x * self.scale
        return self.bn(x)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]

# --- Folded parameters: computed from parameters alone, in float64, rounded once. -----------------
def _refold_fold0(scale):
    """square(scale), of shape [4096]."""
    return _refold_rounded(scale.double().square(), torch.float32)


def _refold_fold1(scale, bn_running_var, bn_weight):
    """(scale * rsqrt((bn.running_var + 1e-05))) * bn.weight, of shape [4096]."""
    mul2 = (scale.double() * (bn_running_var.double() + 1e-05).rsqrt()) * bn_weight.double()
    return _refold_rounded(mul2, torch.float32)


def _refold_fold2(gemm_bias, scale, bn_running_mean, bn_running_var, bn_weight, bn_bias):
    """(((... + ...) * rsqrt(...)) * bn.weight) + bn.bias, of shape [4096]."""
    rsqrt = (bn_running_var.double() + 1e-05).rsqrt()
    mul2 = ((gemm_bias.double() * scale.double()) + (-bn_running_mean.double())) * rsqrt
    return _refold_rounded((mul2 * bn_weight.double()) + bn_bias.double(), torch.float32)

# --- The fast forward, and the module. ------------------------------------------------------------
# An infinity among the inputs may give NaN here and an infinity there, or the other way round.
REFOLD_ASSUMES = "finite"


def _refold_train(self, rf_cache, x):
    """The fast forward in train mode."""
    folded, gemm_weight, scale, bn_weight, bn_bias, gemm_bias, gemm_weight_packed = rf_cache.values
    rf_device = rf_cache.device
    rf_stream = _refold_stream(rf_device)
    if rf_stream != rf_cache.stream:
        _refold_wait(rf_cache, rf_device)
    rf_empty = _refold_empty if _refold_current() == rf_device else _refold_empty_on(rf_device)
    n0 = x.shape[0]
    bn_running_mean, bn_running_var, bn_num_batches_tracked = rf_cache.states
    x = x.contiguous()
    product = rf_empty((n0, 4096), (4096, 1), torch.float32)
    mean = rf_empty((4096,), (1,), torch.float32)
    factor = rf_empty((4096,), (1,), torch.float32)
    rf_size = _refold_kernels.train_matmul0_workspace_size(n0, 4096, 4096, rf_device)
    rf_work = _refold_workspace(rf_size, rf_stream, rf_device)
    _refold_kernels.train_matmul0(x, 0, gemm_weight, gemm_weight_packed, folded, scale,
        bn_weight, bn_running_mean, gemm_bias, bn_running_var, product, mean, factor,
        bn_running_mean, bn_running_var, bn_num_batches_tracked, n0, 4096, 4096, rf_work[0],
        rf_work[1], rf_stream, rf_device)
    torch.autograd.graph.increment_version(bn_num_batches_tracked)
    result = product  # in its place
    _refold_kernels.train_pointwise1(product, mean, factor, bn_bias, result, n0, 4096, 0, 0,
        rf_stream, rf_device)
    return result


def _refold_eval(self, rf_cache, x):
    """The fast forward in eval mode."""
    folded_factor, folded_shift, gemm_weight, gemm_weight_packed = rf_cache.values
    rf_device = rf_cache.device
    rf_stream = _refold_stream(rf_device)
    if rf_stream != rf_cache.stream:
        _refold_wait(rf_cache, rf_device)
    rf_empty = _refold_empty if _refold_current() == rf_device else _refold_empty_on(rf_device)
    n0 = x.shape[0]
    x = x.contiguous()
    result = rf_empty((n0, 4096), (4096, 1), torch.float32)
    rf_size = _refold_kernels.eval_matmul0_workspace_size(n0, 4096, 4096, rf_device)
    rf_work = _refold_workspace(rf_size, rf_stream, rf_device)
    _refold_kernels.eval_matmul0(x, 0, gemm_weight, gemm_weight_packed, folded_factor,
        folded_shift, result, n0, 4096, 4096, rf_work[0], rf_work[1], rf_stream, rf_device)
    return result


class ModelNew(Model):
    """Model, computed by the kernels below wherever they compute the same function.

    Assumed, and checked at every call:
    - x is a dense torch.float32 tensor of shape [n, 4096].
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
        _refold_look_meanwhile(rf_caches, _refold_file)
        return super().forward(x)


# --- What is assumed of modules, parameters and buffers, and of the arguments of a call. ----------
# path, class, names of parameters, buffers and children, settings
_REFOLD_MODULES = (
    ("", "", "bn gemm scale", {}),
    ("gemm", "Linear", "bias weight", {"in_features": 4096, "out_features": 4096}),
    ("bn", "BatchNorm1d", "bias num_batches_tracked running_mean running_var weight",
        {"affine": True, "eps": 1e-05, "momentum": 0.1, "num_features": 4096,
        "track_running_stats": True}),
)
_REFOLD_TENSORS = {
    "gemm.weight": ((4096, 4096), torch.float32), "scale": ((4096,), torch.float32),
    "bn.weight": ((4096,), torch.float32), "bn.bias": ((4096,), torch.float32),
    "gemm.bias": ((4096,), torch.float32), "bn.running_mean": ((4096,), torch.float32),
    "bn.running_var": ((4096,), torch.float32), "bn.num_batches_tracked": ((), torch.int64),
}
# values, as forward reads them: a parameter, what is folded of some, another form of a value
_REFOLD_MODES = {
    "train": {"values": {"folded": (_refold_fold0, "scale"), "gemm_weight": "gemm.weight",
        "scale": "scale", "bn_weight": "bn.weight", "bn_bias": "bn.bias", "gemm_bias": "gemm.bias",
        "gemm_weight_packed": ("pack", "gemm_weight")}, "writes": ("bn.running_mean",
        "bn.running_var", "bn.num_batches_tracked")},
    "eval": {"values": {"folded_factor": (_refold_fold1, "scale", "bn.running_var",
        "bn.weight"), "folded_shift": (_refold_fold2, "gemm.bias", "scale", "bn.running_mean",
        "bn.running_var", "bn.weight", "bn.bias"), "gemm_weight": "gemm.weight",
        "gemm_weight_packed": ("pack", "gemm_weight")}},
}


def _refold_misfit(self, x):
    """Why the kernels are for other arguments than these, or None."""
    return _refold_argument("x", x, (None, 4096), torch.float32, "cuda")


# --- This model's kernels: compiled at the first import, then found where they lie. --------------
_REFOLD_KERNELS = r"""
namespace rf {
struct TrainMatmul0 : MatmulBody {  // linear, mean, var, mul, add, rsqrt
  const float* folded;  // square(scale)
  const float *scale, *bn_weight, *bn_running_mean, *gemm_bias, *bn_running_var;
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
    const float scale_at = column<float>(scale, col);
    const float folded_at = column<float>(folded, col);
    const auto mul1 = scale_at * rsqrt(c.var * folded_at + 1e-05f);
    const auto mul2 = (c.mean + column<float>(gemm_bias, col)) * scale_at * 0.1f;
    const auto mul3 = column<float>(bn_running_var, col) * 0.9f;
    const auto add1 = column<float>(bn_running_mean, col) * 0.9f + mul2;
    const auto add2 = mul3 + c.var2 * folded_at * 0.1f;
    put(factor, col, mul1 * column<float>(bn_weight, col));
    put(new_bn_running_mean, col, add1);
    put(new_bn_running_var, col, add2);
    if (col == 0) *bn_num_batches_tracked += 1;
  }
  using Schedules = BySize<UpToRows<16, Plain>, UpToRows<256, Schedule<Ieee, Small, 4>>,
      Schedule<Ieee, Tall, 1>>;
  RF_FN bool in_pairs() const { return rf::in_pairs(product, width); }
};

struct TrainPointwise1 : RowsBody {  // sub, mul, add
  Reused<float, 0> product;  // linear(x, gemm.weight)
  Reused<float, 1> mean;  // mean(linear(x, gemm.weight), axes [-2])
  Reused<float, 2> factor;  // (scale * ...) * bn.weight
  Reused<float, 3> bn_bias;
  float* result;
  long width;
  static constexpr int kReused = 4;
  template <class V, class C> RF_FN void store(const Row& r, long row, C col) const {
    const auto sub1 = full<V>(product, row * width, col) - column<V>(mean, col);
    put(result, row * width, col, sub1 * column<V>(factor, col) + column<V>(bn_bias, col));
  }
  bool is_aligned() const { return rf::aligned(product.p, mean.p, factor.p, bn_bias.p, result); }
  template <class V, class C> RF_FN void read(long row, C col) const {
    full<V>(product, row * width, col); column<V>(mean, col); column<V>(factor, col);
    column<V>(bn_bias, col);
  }
};

struct EvalMatmul0 : MatmulBody {  // linear, mul, add
  const float* folded_factor;  // (scale * ...) * bn.weight
  const float* folded_shift;  // (... * bn.weight) + bn.bias
  float* result;
  long width;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    return acc * column<V>(folded_factor, col) + column<V>(folded_shift, col);
  }
  template <class C> RF_FN void store(long row, C col, Vec v) const {
    put(result, row * width, col, v);
  }
  using Schedules = BySize<UpToRows<16, Plain>, UpToRows<256, Schedule<Ieee, Small, 4>>,
      Schedule<Ieee, Tall, 1>>;
  RF_FN bool in_pairs() const { return rf::in_pairs(result, width); }
};

// How Python calls them: a name, what is given in order, and what runs.
RF_FUNCTION(packed_bytes, (long rows, long depth), packed_bytes<Ieee>(rows, depth))
RF_ON_STREAM(pack, (float* x, float* packed, long rows, long depth),
    pack<Ieee>(x, packed, rows, depth, on))
RF_WORKSPACE(train_matmul0, matmul_workspace_size<TrainMatmul0>)
RF_KERNEL(train_matmul0, (Packed<Ieee> a, Packed<Ieee> w, Members<TrainMatmul0, 12> body,
    long rows, long width, long depth),
    rf::matmul(body.sized(width, rows), rows, a(rows, depth), w(width, depth), depth, work, on))
RF_KERNEL(train_pointwise1, (Members<TrainPointwise1, 5> body, long rows, long width),
    rf::rows(body.sized(width), rows, width, body.is_aligned(), work, on))
RF_WORKSPACE(eval_matmul0, matmul_workspace_size<EvalMatmul0>)
RF_KERNEL(eval_matmul0, (Packed<Ieee> a, Packed<Ieee> w, Members<EvalMatmul0, 3> body, long rows,
    long width, long depth),
    rf::matmul(body.sized(width), rows, a(rows, depth), w(width, depth), depth, work, on))
}  // namespace rf
"""

# ==============================================================================================
# Below: the same in every file, but for the names of a call's arguments.
# ==============================================================================================
_REFOLD_HEADERS = r"""
#define PY_SSIZE_T_CLEAN
// Calls from Python: every argument is a tensor, an int (a size, or an address) or a float.
//
//   RF_FUNCTION(name, (parameters), result)   a function of Python, whose arguments are the parameters in order:
//     T*, long, float, double   one argument
//     a struct with kArguments  so many arguments, its members
//     Members<Body, N>          N arguments, the first members of a kernel's struct
namespace rf {

// What a kernel's struct is made from where its headers have nothing for it.
struct Bare {};

}  // namespace rf

#ifdef __CUDACC_RTC__  // NVRTC compiles what runs on a GPU alone
#define RF_FUNCTION(...)
#else
#include <Python.h>

#include <tuple>
#include <type_traits>
#include <utility>

// A tensor's address by PyTorch's own function for C code that has no headers of PyTorch; by the method, which makes a
// Python number of it, where there is none.
typedef void* RfAddressOf(PyObject*);
static RfAddressOf* rf_address_of() {
  PyObject* guards = PyImport_ImportModule("torch._C._dynamo.guards");
  PyObject* function = guards ? PyObject_GetAttrString(guards, "_torchinductor_pyobject_tensor_data_ptr") : nullptr;
  void* address = function ? PyLong_AsVoidPtr(function) : nullptr;
  Py_XDECREF(function);
  Py_XDECREF(guards);
  PyErr_Clear();
  return reinterpret_cast<RfAddressOf*>(address);
}
static void* rf_address(PyObject* o) {
  if (PyLong_Check(o)) return PyLong_AsVoidPtr(o);
  // not by a static initialiser: who waits for that holds the interpreter's lock, which the import may need
  static RfAddressOf* address_of;
  static bool looked;
  if (!looked) address_of = rf_address_of(), looked = true;
  if (address_of != nullptr) {
    try {
      return address_of(o);
    } catch (...) {
      PyErr_SetString(PyExc_RuntimeError, "a tensor has no address");
      return nullptr;
    }
  }
  PyObject* number = PyObject_CallMethod(o, "data_ptr", nullptr);
  void* address = number ? PyLong_AsVoidPtr(number) : nullptr;
  Py_XDECREF(number);
  return address;
}
static inline bool rf_takes(Py_ssize_t given, Py_ssize_t wanted) {
  if (given != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
  return given == wanted;
}

// The functions that Python sees. Each is declared where it is defined.
using RfFunction = PyObject*(PyObject*, PyObject* const*, Py_ssize_t);
struct RfMethod;
inline RfMethod* rf_methods = nullptr;  // of all files of the module
struct RfMethod {
  PyMethodDef rows[2] = {};
  RfMethod* next = rf_methods;
  RfMethod(const char* name, RfFunction* function) {
    rows[0].ml_name = name, rows[0].ml_flags = METH_FASTCALL;
    rows[0].ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
    rf_methods = this;
  }
};
#if !defined(RF_UNIT) || RF_UNIT == 0
static PyModuleDef rf_module = {PyModuleDef_HEAD_INIT, "kernels", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
#define RF_INIT_(name) PyInit_##name
#define RF_INIT(name) RF_INIT_(name)
PyMODINIT_FUNC RF_INIT(TORCH_EXTENSION_NAME)() {
  PyObject* module = PyModule_Create(&rf_module);
  for (RfMethod* m = rf_methods; module != nullptr && m != nullptr; m = m->next)
    if (PyModule_AddFunctions(module, m->rows) != 0) Py_CLEAR(module);
  return module;
}
#endif

// An argument, as what it initialises.
struct RfArgument {
  PyObject* given;
  template <class T> operator T*() const { return static_cast<T*>(rf_address(given)); }
  operator long() const { return PyLong_AsLong(given); }
  operator float() const { return static_cast<float>(PyFloat_AsDouble(given)); }
  operator double() const { return PyFloat_AsDouble(given); }
};

// A parameter of type T from the arguments at `args`, of which it takes kCount.
template <class T, class = void> struct RfParameter {
  static constexpr int kCount = 1;
  static T from(PyObject* const* args) { return RfArgument{args[0]}; }
};
template <class T, size_t... I> static inline T rf_filled(PyObject* const* args, std::index_sequence<I...>) {
  return {RfArgument{args[I]}...};
}
template <class T> struct RfParameter<T, std::void_t<decltype(T::kArguments)>> {
  static constexpr int kCount = T::kArguments;
  static T from(PyObject* const* args) { return rf_filled<T>(args, std::make_index_sequence<kCount>{}); }
};

namespace rf {

// A kernel's struct of which Python gives the first N members; sizes fill the rest.
template <class Body, int N> struct Members {
  Body body;
  bool is_aligned() const { return body.is_aligned(); }
  Body sized(long width) const {
    Body whole = body;
    whole.width = width;
    return whole;
  }
  Body sized(long width, long count) const {
    Body whole = sized(width);
    whole.count = count;
    return whole;
  }
};

}  // namespace rf

template <class Body, int N> struct RfParameter<rf::Members<Body, N>> {
  static constexpr int kCount = N;
  template <size_t... I> static Body filled(PyObject* const* args, std::index_sequence<I...>) {
    return {{}, RfArgument{args[I]}...};
  }
  static rf::Members<Body, N> from(PyObject* const* args) { return {filled(args, std::make_index_sequence<N>{})}; }
};

template <class T> static inline T rf_next(PyObject* const*& args) {
  PyObject* const* const here = args;
  args += RfParameter<T>::kCount;
  return RfParameter<T>::from(here);
}

// Reads the parameters of `run` from the arguments and calls call(parameters, the arguments after them), which gives
// Python's result. more: how many come after them.
template <class R, class... P, class Call>
static inline PyObject* rf_called(R (*)(P...), int more, PyObject* const* args, Py_ssize_t n, const Call& call) {
  if (!rf_takes(n, (RfParameter<P>::kCount + ... + more))) return nullptr;
  const std::tuple<P...> given{rf_next<P>(args)...};  // in order: the elements of a braced list are
  return PyErr_Occurred() ? nullptr : call(given, args);
}

[[maybe_unused]] static inline PyObject* rf_result(size_t bytes) { return PyLong_FromSize_t(bytes); }

#define RF_LIST(...) __VA_ARGS__
#define RF_METHOD(name, function) static const RfMethod name##_method(#name, function);
#define RF_FUNCTION(name, parameters, ...)                                                    \
  static auto name##_of parameters { return __VA_ARGS__; }                                    \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {            \
    return rf_called(name##_of, 0, args, n, [](const auto& given, PyObject* const*) {         \
      return rf_result(std::apply(name##_of, given));                                         \
    });                                                                                       \
  }                                                                                           \
  RF_METHOD(name, name##_called)
#endif

// Contents: what is known of the memory of a parameter: a few words of it, which every call compares, and a digest of
// each block, which one call of many does.
#ifndef __CUDACC_RTC__
#include <cstdint>
#include <cstring>

namespace rf_watch {

struct Content {
  const char* address;
  uint64_t bytes, samples, digests;  // where in memory: what was read of it, and a digest of each block
};

constexpr uint64_t kWhole = 2048, kSamples = 32, kBlock = 1024;  // bytes; words; bytes
constexpr uint64_t kMany = 512, kFewer = 16;  // contents, from which on fewer words of each are read

static inline uint64_t sampled(uint64_t k, uint64_t words) {  // evenly spread, whatever the sizes of rows
  return static_cast<uint64_t>((static_cast<unsigned __int128>(k * 0x9E3779B97F4A7C15ul) * words) >> 64);
}
static inline uint64_t samples_bytes(uint64_t bytes, uint64_t words) {
  return bytes <= kWhole ? (bytes + 7) / 8 * 8 : words * 4;
}
static inline uint64_t blocks_of(uint64_t bytes) { return bytes <= kWhole ? 0 : (bytes + kBlock - 1) / kBlock; }

// Words are read in pairs: a pair costs one line of the cache and one number of its place.
static void sample(const Content& c, uint64_t words, char* to) {
  if (c.bytes <= kWhole) {
    std::memcpy(to, c.address, c.bytes);
    return;
  }
  for (uint64_t k = 0; k < words / 2; k++) std::memcpy(to + 8 * k, c.address + 8 * sampled(k, c.bytes / 8), 8);
}
static inline bool as_sampled(const Content& c, uint64_t words, const char* was) {
  if (c.bytes <= kWhole) return std::memcmp(was, c.address, c.bytes) == 0;
  uint64_t differs = 0;
  for (uint64_t k = 0; k < words / 2; k++) {
    uint64_t now, then;
    std::memcpy(&now, c.address + 8 * sampled(k, c.bytes / 8), 8);
    std::memcpy(&then, was + 8 * k, 8);
    differs |= now ^ then;
  }
  return differs == 0;
}
// Each step is one to one, so two blocks that differ in one word never have the same digest.
static uint64_t digest(const char* p, uint64_t bytes) {
  constexpr int kLanes = 16;
  uint32_t lane[kLanes], word[kLanes];
  for (int l = 0; l < kLanes; l++) lane[l] = 0x85EBCA6Bu * (l + 1);
  const auto mix = [&] {
    for (int l = 0; l < kLanes; l++) {
      lane[l] = (lane[l] ^ word[l]) * 0x9E3779B1u;
      lane[l] ^= lane[l] >> 15;
    }
  };
  uint64_t i = 0;
  for (; i + sizeof word <= bytes; i += sizeof word) {
    std::memcpy(word, p + i, sizeof word);
    mix();
  }
  if (i < bytes) {
    std::memset(word, 0, sizeof word);
    std::memcpy(word, p + i, bytes - i);
    mix();
  }
  uint64_t all = bytes;
  for (int l = 0; l < kLanes; l++) {
    all = (all ^ lane[l]) * 0x9E3779B97F4A7C15ul;
    all ^= all >> 29;
  }
  return all;
}
static uint64_t block_digest(const Content& c, uint64_t b) {
  const uint64_t from = b * kBlock, left = c.bytes - from;
  return digest(c.address + from, left < kBlock ? left : kBlock);
}

}  // namespace rf_watch
#endif

// Entries: what dictionaries hold, and the tags by which CPython tells that one, or a type, was written to.
#ifndef __CUDACC_RTC__
#include <cstdint>
#include <cstring>


namespace rf_watch {

// --- dictionaries: CPython up to 3.12 numbers every change of a dict (PEP 509) ---
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline uint64_t tag_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop
constexpr bool kTags = true;
#else
static inline uint64_t tag_of(PyObject*) { return 0; }
constexpr bool kTags = false;
#endif

static bool same_entries(PyObject* row) {
  PyObject* dict = PyTuple_GET_ITEM(row, 0);
  const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 1));
  if (size >= 0 && PyDict_GET_SIZE(dict) != size) return false;
  for (Py_ssize_t i = 2; i + 1 < PyTuple_GET_SIZE(row); i += 2) {
    PyObject* wanted = PyTuple_GET_ITEM(row, i + 1);
    PyObject* value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(row, i));
    if (value != (wanted == dict ? nullptr : wanted)) return false;
  }
  return true;
}

// --- values: Python takes 1, True and 1.0 for equal, and 0.0 and -0.0; who computes with them does not ---
static bool alike(PyObject* held, PyObject* copy) {
  if (held == copy) return true;
  PyTypeObject* type = Py_TYPE(held);
  if (type != Py_TYPE(copy)) return false;
  if (type == &PyFloat_Type) {
    const double a = PyFloat_AS_DOUBLE(held), b = PyFloat_AS_DOUBLE(copy);
    return memcmp(&a, &b, sizeof a) == 0;
  }
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type)
    return PyObject_RichCompareBool(held, copy, Py_EQ) == 1;
  if (!PyTuple_Check(held) || PyTuple_GET_SIZE(held) != PyTuple_GET_SIZE(copy)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); i++)
    if (!alike(PyTuple_GET_ITEM(held, i), PyTuple_GET_ITEM(copy, i))) return false;
  return true;
}
// Of a list or a dict and its copy: the same values in the same order. Others tell by themselves what they equal.
static bool same_values(PyObject* held, PyObject* copy) {
  if (PyList_Check(held) && PyList_Check(copy)) {
    if (PyList_GET_SIZE(held) != PyList_GET_SIZE(copy)) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(held); i++)
      if (!alike(PyList_GET_ITEM(held, i), PyList_GET_ITEM(copy, i))) return false;
    return true;
  }
  const bool dicts = PyDict_Check(held) && PyDict_Check(copy);
  // an ordered one has its order in a place of its own, which it compares itself
  if ((!dicts || PyODict_Check(held)) && PyObject_RichCompareBool(held, copy, Py_EQ) != 1) return false;
  if (!dicts) return true;
  if (PyDict_GET_SIZE(held) != PyDict_GET_SIZE(copy)) return false;
  Py_ssize_t at = 0, there = 0;
  PyObject *key, *value, *name, *wanted;
  while (PyDict_Next(copy, &there, &name, &wanted)) {
    if (PyODict_Check(held))
      value = PyDict_GetItemWithError(held, name);
    else if (!PyDict_Next(held, &at, &key, &value) || !alike(key, name))
      return false;
    if (value == nullptr || !alike(value, wanted)) return false;
  }
  return true;
}

// --- types: CPython gives a type another tag when the type or a base is written to; 0: it has none ---
static uint64_t tag_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030B0000
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

}  // namespace rf_watch
#endif

// Look: what a kernel on a GPU compares in passing, so that writes which nothing on the host shows are seen.
#include <cstdint>

namespace rf_watch {

// What a kernel on a GPU looks at: it sets *flag to epoch where a word is not the expected one. A call that
// synchronises with nothing learns of it at the call after.
struct Look {
  const uint32_t* const* words;
  const uint32_t* expected;
  uint64_t count;
  uint32_t* flag;
  uint32_t epoch;
};
#ifdef __CUDACC_RTC__
Look take_look();
#else
static thread_local Look next_look;  // of the kernel that this thread starts next

// The look that is due, once.
[[maybe_unused]] static Look take_look() {
  const Look due = next_look;
  next_look.count = 0;
  return due;
}
#endif

}  // namespace rf_watch

// watch and unchanged: every call of an emitted module asks first whether all that its kernels were prepared for is
// still so. In Python the answer would cost more than a small kernel.
//
//   watch(dicts, types, exact_types, tensors, stores, contents, blocks) -> bytearray: how things are now
//   unchanged(dicts, types, exact_types, tensors, stores, contents, cells, equal, memory) -> bool: are they so still?
//   look(memory, words, expected, count, epoch, flag): let the next kernel compare `count` words of device memory
//   altered(memory) -> int: what `unchanged` found last (see Change)
//   written(memory) -> int: another one after a write to a tensor that is counted, where one has moved, and where
//             `unchanged` found last that memory holds something else, after other writes to that
//   differing(before, after) -> tuple of bool, or None: which contents differ between two memories of the same contents
//
//   dicts     (dict, size or -1, key, value, ...), ...: dict[key] is value; the dict as value: there is no such key
//   types     type, ...: nothing was written to the type or to one of its bases
//   exact_types  object, type, ...: the object is of exactly that type
//   tensors   tensor, counted, ...: is at its address and, if counted is true, at its version
//   stores    weak reference, ...: the storage that a tensor lay in is alive, so its address is nobody else's
//   contents  address, bytes, ...: the memory holds what it held. Whole where it is small; else a few words of it at
//             every call, and `blocks` KiB more of one of them, each at its time (the audit)
//   cells     cell, value, ...: a closure's cell holds the value; or function, (code, defaults, defaults of keywords)
//   equal     object, copy, ...: a list or dict is its copy in values, classes and order; others equal theirs
//
// memory holds addresses of these objects: whoever keeps it keeps the tuples, too.
#ifndef __CUDACC_RTC__
#include <dlfcn.h>

#include <cstdint>


namespace rf_watch {

enum Change : uint64_t { kNothing, kDict, kType, kExactType, kTensor, kContent, kAudit, kCell, kEqual, kStore, kLate };

struct Header {
  uint64_t dicts, types, exact_types, tensors, contents, blocks, change;
  uint64_t words;  // that are read of each of the contents
  uint64_t content, block;  // the audit's place
  Look look;
};
struct Dict {
  PyObject* dict;
  uint64_t tag;
};
struct Type {
  PyTypeObject* type;
  uint64_t tag;
};
struct ExactType {
  PyObject* object;
  PyTypeObject* type;
};
struct Tensor {
  PyObject* tensor;
  int64_t version;  // -1: not counted
  void* address;
  const char* impl;         // where PyTorch keeps what it knows of the tensor
  const char* const* held;  // where the Python object holds `impl`; null: not found
};

constexpr uint64_t kAhead = 4;  // tensors

// --- tensors ---
// at::TensorBase::_version() of libtorch_cpu. A TensorBase is one pointer, to the tensor's implementation, and each Python
// tensor holds one. torch.Tensor._version gives the same, behind checks and a new number, and takes six times as long.
using VersionOf = int64_t(const char* const* held);
static VersionOf* version_function() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void* function = library ? dlsym(library, "_ZNK2at10TensorBase8_versionEv") : nullptr;
  return reinterpret_cast<VersionOf*>(function);
}
// Where in a Python tensor the address of its implementation lies: PyTorch does not say, so it is searched for.
static const char* const* held_by(PyObject* tensor, const char* impl) {
  const auto* words = reinterpret_cast<const char* const*>(tensor);
  for (size_t i = sizeof(PyObject) / sizeof *words; i < Py_TYPE(tensor)->tp_basicsize / sizeof *words; i++)
    if (words[i] == impl) return words + i;
  return nullptr;
}

static int64_t version_by_python(PyObject* tensor) {
  static PyGetSetDescrObject* field;
  if (field == nullptr) {
    PyObject* module = PyImport_ImportModule("torch._C");
    PyObject* base = module ? PyObject_GetAttrString(module, "TensorBase") : nullptr;
    PyObject* descriptor = base ? PyObject_GetAttrString(base, "_version") : nullptr;
    Py_XDECREF(base);
    Py_XDECREF(module);
    if (descriptor == nullptr) return -1;
    if (!PyObject_TypeCheck(descriptor, &PyGetSetDescr_Type)) {
      PyErr_SetString(PyExc_TypeError, "a tensor's _version is no field");
      return -1;
    }
    field = reinterpret_cast<PyGetSetDescrObject*>(descriptor);
  }
  PyObject* number = field->d_getset->get(tensor, field->d_getset->closure);
  if (number == nullptr) return -1;
  const int64_t version = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return version;
}
static int64_t version_of(const Tensor& t) {
  // not by a static initialiser: who waits for that holds the interpreter's lock, which the search may need
  static VersionOf* version;
  static bool looked;
  if (!looked) version = version_function(), looked = true;
  if (version == nullptr || t.held == nullptr) return version_by_python(t.tensor);
  try {
    return version(t.held);
  } catch (...) {  // a tensor of inference_mode counts nothing
    PyErr_SetString(PyExc_RuntimeError, "a tensor has no version");
    return -1;
  }
}

// Of many tensors little is in the near caches, and each read waits for the one before.
static inline void fetch(const Tensor& t) {
  __builtin_prefetch(t.tensor);
  for (int line = 0; line < 4; line++) __builtin_prefetch(t.impl + 64 * line);
}

struct Memory {
  char* at;
  Header& header() const { return *reinterpret_cast<Header*>(at); }
  Dict* dicts() const { return reinterpret_cast<Dict*>(at + sizeof(Header)); }
  Type* types() const { return reinterpret_cast<Type*>(dicts() + header().dicts); }
  ExactType* exact_types() const { return reinterpret_cast<ExactType*>(types() + header().types); }
  Tensor* tensors() const { return reinterpret_cast<Tensor*>(exact_types() + header().exact_types); }
  Content* contents() const { return reinterpret_cast<Content*>(tensors() + header().tensors); }
  uint64_t* digests(const Content& c) const { return reinterpret_cast<uint64_t*>(at + c.digests); }
};

// Audits the next blocks of the contents, one after another: whether they are as they were.
static bool audit(const Memory& m) {
  Header& h = m.header();
  uint64_t left = h.contents ? h.blocks : 0;
  for (uint64_t tried = 0; left > 0 && tried <= h.contents; tried++) {
    if (h.content >= h.contents) h.content = h.block = 0;
    const Content& c = m.contents()[h.content];
    for (const uint64_t end = blocks_of(c.bytes); left > 0 && h.block < end; h.block++, left--)
      if (block_digest(c, h.block) != m.digests(c)[h.block]) return false;
    if (h.block >= blocks_of(c.bytes)) h.content++, h.block = 0;
  }
  return true;
}

static bool is_dead(PyObject* reference) {
#if PY_VERSION_HEX < 0x030D0000
  return PyWeakref_Check(reference) && PyWeakref_GetObject(reference) == Py_None;
#else
  PyObject* referent = nullptr;
  const int alive = PyWeakref_GetRef(reference, &referent);
  Py_XDECREF(referent);
  return alive == 0;
#endif
}

// --- cells and functions: what a cell holds; of a function its (code, defaults, defaults of keywords) ---
static bool holds(PyObject* held, PyObject* value) {
  if (PyCell_Check(held)) return PyCell_GET(held) == value;
  const auto is = [value](Py_ssize_t i, PyObject* now) { return PyTuple_GET_ITEM(value, i) == (now ? now : Py_None); };
  return PyFunction_Check(held) && is(0, PyFunction_GET_CODE(held)) && is(1, PyFunction_GET_DEFAULTS(held)) &&
         is(2, PyFunction_GET_KW_DEFAULTS(held));
}

static Change changed(PyObject* const* given, const Memory& m) {
  const Header& h = m.header();
  // first: behind another change it would not be seen, and once all is looked at anew it is gone
  if (h.look.flag != nullptr && *static_cast<volatile uint32_t*>(h.look.flag) == h.look.epoch) return kLate;
  for (uint64_t i = 0; i < h.dicts; i++) {
    Dict& d = m.dicts()[i];
    const uint64_t tag = tag_of(d.dict);
    if (kTags && tag == d.tag) continue;
    if (!same_entries(PyTuple_GET_ITEM(given[0], i))) return kDict;
    d.tag = tag;  // what was written is nothing that is read here
  }
  for (uint64_t i = 0; i < h.types; i++) {
    const Type& t = m.types()[i];
    if (t.tag == 0 || tag_of_type(t.type) != t.tag) return kType;
  }
  for (uint64_t i = 0; i < h.exact_types; i++)
    if (Py_TYPE(m.exact_types()[i].object) != m.exact_types()[i].type) return kExactType;
  PyObject *stores = given[4], *cells = given[6], *equal = given[7];
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stores); i++)
    if (is_dead(PyTuple_GET_ITEM(stores, i))) return kStore;
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(cells); i += 2)
    if (!holds(PyTuple_GET_ITEM(cells, i), PyTuple_GET_ITEM(cells, i + 1))) return kCell;
  for (uint64_t i = 0; i < h.tensors; i++) {
    const Tensor& t = m.tensors()[i];
    if (i + kAhead < h.tensors) fetch(m.tensors()[i + kAhead]);
    if (t.held != nullptr && *t.held != t.impl) return kTensor;  // exchanged for another's
    if (t.version >= 0 && version_of(t) != t.version) return kTensor;
    if (rf_address(t.tensor) != t.address) return kTensor;
  }
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(equal); i += 2) {
    const bool same = same_values(PyTuple_GET_ITEM(equal, i), PyTuple_GET_ITEM(equal, i + 1));
    PyErr_Clear();  // what cannot be compared is not what it was
    if (!same) return kEqual;
  }
  for (uint64_t i = 0; i < h.contents; i++) {  // last: memory of a tensor that moved may be gone
    const Content& c = m.contents()[i];
    if (!as_sampled(c, h.words, m.at + c.samples)) return kContent;
  }
  return audit(m) ? kNothing : kAudit;
}

static bool are_tuples(PyObject* const* args, int n) {
  for (int i = 0; i < n; i++)
    if (!PyTuple_Check(args[i])) {
      PyErr_Format(PyExc_TypeError, "argument %d is a %s, not a tuple", i, Py_TYPE(args[i])->tp_name);
      return false;
    }
  return true;
}
static bool memory_of(PyObject* o, Memory& m) {
  if (!PyByteArray_Check(o) || PyByteArray_GET_SIZE(o) < Py_ssize_t(sizeof(Header))) {
    PyErr_SetString(PyExc_TypeError, "the memory is not one that `watch` gave");
    return false;
  }
  m.at = PyByteArray_AS_STRING(o);
  return true;
}

static PyObject* watch(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 7) || !are_tuples(args, 6)) return nullptr;
  Header h{};
  h.dicts = PyTuple_GET_SIZE(args[0]), h.types = PyTuple_GET_SIZE(args[1]),
  h.exact_types = PyTuple_GET_SIZE(args[2]) / 2;
  h.tensors = PyTuple_GET_SIZE(args[3]) / 2, h.contents = PyTuple_GET_SIZE(args[5]) / 2;
  h.blocks = PyLong_AsUnsignedLongLong(args[6]);
  h.words = h.contents > kMany ? kFewer : kSamples;
  uint64_t size = sizeof h + h.dicts * sizeof(Dict) + h.types * sizeof(Type) + h.exact_types * sizeof(ExactType) +
                  h.tensors * sizeof(Tensor) + h.contents * sizeof(Content);
  const uint64_t fixed = size;
  for (uint64_t i = 0; i < h.contents; i++) {
    const uint64_t bytes = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[5], 2 * i + 1));
    size += samples_bytes(bytes, h.words) + 8 * blocks_of(bytes);
  }
  if (PyErr_Occurred()) return nullptr;
  PyObject* made = PyByteArray_FromStringAndSize(nullptr, size);
  if (made == nullptr) return nullptr;
  const Memory m{PyByteArray_AS_STRING(made)};
  m.header() = h;
  next_look.count = 0;  // one that was due and never taken may be of a module that is gone
  for (uint64_t i = 0; i < h.dicts; i++) {
    PyObject* row = PyTuple_GET_ITEM(args[0], i);
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) < 2 || !PyDict_Check(PyTuple_GET_ITEM(row, 0))) {
      PyErr_SetString(PyExc_TypeError, "a row of dicts is (dict, size, key, value, ...)");
      goto failed;
    }
    PyObject* dict = PyTuple_GET_ITEM(row, 0);
    const uint64_t tag = tag_of(dict);
    // what changed since the row was made is seen at the first look
    m.dicts()[i] = {dict, same_entries(row) ? tag : ~uint64_t{0}};
  }
  for (uint64_t i = 0; i < h.types; i++) {
    PyObject* type = PyTuple_GET_ITEM(args[1], i);
    if (!PyType_Check(type)) {
      PyErr_SetString(PyExc_TypeError, "a row of types is a type");
      goto failed;
    }
    // a type gets its tag where it is looked into, which the metatype's own __doc__ does not ask for
    PyObject* init = PyObject_GetAttrString(type, "__init__");
    Py_XDECREF(init);
    PyErr_Clear();
    m.types()[i] = {reinterpret_cast<PyTypeObject*>(type), tag_of_type(reinterpret_cast<PyTypeObject*>(type))};
  }
  for (uint64_t i = 0; i < h.exact_types; i++)
    m.exact_types()[i] = {PyTuple_GET_ITEM(args[2], 2 * i),
                    reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(args[2], 2 * i + 1))};
  for (uint64_t i = 0; i < h.tensors; i++) {
    PyObject* tensor = PyTuple_GET_ITEM(args[3], 2 * i);
    const bool counted = PyObject_IsTrue(PyTuple_GET_ITEM(args[3], 2 * i + 1)) == 1;
    Tensor& t = m.tensors()[i];
    t = {tensor, -1, rf_address(tensor), nullptr, nullptr};
    if (PyErr_Occurred()) goto failed;
    PyObject* impl = PyObject_GetAttrString(tensor, "_cdata");
    if (impl != nullptr) {
      t.impl = static_cast<const char*>(PyLong_AsVoidPtr(impl));
      t.held = held_by(tensor, t.impl);
      Py_DECREF(impl);
    }
    PyErr_Clear();
    if (counted) t.version = version_of(t);
    if (PyErr_Occurred()) goto failed;
  }
  size = fixed;
  for (uint64_t i = 0; i < h.contents; i++) {
    Content& c = m.contents()[i];
    c.address = static_cast<const char*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(args[5], 2 * i)));
    c.bytes = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[5], 2 * i + 1));
    c.samples = size, c.digests = size + samples_bytes(c.bytes, h.words);
    size = c.digests + 8 * blocks_of(c.bytes);
    std::memset(m.at + c.samples, 0, c.digests - c.samples);
    sample(c, h.words, m.at + c.samples);
    for (uint64_t b = 0; b < blocks_of(c.bytes); b++) m.digests(c)[b] = block_digest(c, b);
  }
  if (PyErr_Occurred()) goto failed;
  return made;
failed:
  Py_DECREF(made);
  return nullptr;
}

static PyObject* unchanged(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 9) || !are_tuples(args, 8) || !memory_of(args[8], m)) return nullptr;
  const Change change = changed(args, m);
  m.header().change = change;
  next_look = m.header().look;
  if (change != kNothing) next_look.count = 0;
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(change == kNothing);
}

static PyObject* look(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 6) || !memory_of(args[0], m)) return nullptr;
  Look& l = m.header().look;
  l.words = static_cast<const uint32_t* const*>(PyLong_AsVoidPtr(args[1]));
  l.expected = static_cast<const uint32_t*>(PyLong_AsVoidPtr(args[2]));
  l.count = PyLong_AsUnsignedLongLong(args[3]);
  l.epoch = static_cast<uint32_t>(PyLong_AsUnsignedLong(args[4]));
  l.flag = static_cast<uint32_t*>(PyLong_AsVoidPtr(args[5]));
  if (PyErr_Occurred()) return nullptr;
  next_look = l;  // this call's kernel looks, too
  Py_RETURN_NONE;
}

static PyObject* altered(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 1) || !memory_of(args[0], m)) return nullptr;
  return PyLong_FromUnsignedLongLong(m.header().change);
}

static PyObject* written(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 1) || !memory_of(args[0], m)) return nullptr;
  uint64_t all = 0;
  for (uint64_t i = 0; i < m.header().tensors; i++) {
    const Tensor& t = m.tensors()[i];
    if (t.version < 0) continue;
    const uint64_t version = version_of(t), address = reinterpret_cast<uint64_t>(rf_address(t.tensor));
    all = (all ^ version) * 0x9E3779B97F4A7C15ul;
    all = (all ^ address ^ all >> 29) * 0x9E3779B97F4A7C15ul;
  }
  for (uint64_t i = 0; m.header().change == kContent && i < m.header().contents; i++) {  // addresses are what they were
    const Content& c = m.contents()[i];
    char words[kWhole];
    sample(c, m.header().words, words);
    const uint64_t bytes = c.bytes <= kWhole ? c.bytes : samples_bytes(c.bytes, m.header().words);
    all = (all ^ digest(words, bytes)) * 0x9E3779B97F4A7C15ul;
  }
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(all);
}

static PyObject* differing(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory a{}, b{};
  if (!rf_takes(n, 2) || !memory_of(args[0], a) || !memory_of(args[1], b)) return nullptr;
  const uint64_t contents = a.header().contents;
  bool equal = contents == b.header().contents;
  for (uint64_t i = 0; equal && i < contents; i++) equal = a.contents()[i].bytes == b.contents()[i].bytes;
  if (!equal) Py_RETURN_NONE;
  PyObject* flags = PyTuple_New(contents);
  if (flags == nullptr) return nullptr;
  for (uint64_t i = 0; i < contents; i++) {
    const Content &x = a.contents()[i], &y = b.contents()[i];
    const uint64_t bytes = samples_bytes(x.bytes, a.header().words) + 8 * blocks_of(x.bytes);
    const bool differs = std::memcmp(a.at + x.samples, b.at + y.samples, bytes) != 0;
    PyTuple_SET_ITEM(flags, i, PyBool_FromLong(differs));
  }
  return flags;
}

RF_METHOD(watch, watch)
RF_METHOD(unchanged, unchanged)
RF_METHOD(look, look)
RF_METHOD(altered, altered)
RF_METHOD(written, written)
RF_METHOD(differing, differing)

}  // namespace rf_watch
#endif

// Device: what the host side of every kernel needs: checked calls, facts of the device, launches.
//
// Why: an emitted file calls kernels with raw addresses and sizes. Each host function here gives back
// nullptr, or one line of text that says what failed; the caller raises it. Nothing synchronises or
// allocates, so every call can be captured in a CUDA graph. The current device is the one used.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <mutex>

#ifdef RF_APART
extern "C" const char* rf_handle(void* row, int code, void** handle);
#endif

namespace rf {

using Error = const char*;  // nullptr: no error; else text that lives until the thread's next one

#define RF_TRY(expression) \
  if (::rf::Error rf_error = (expression)) return rf_error

constexpr int kDevices = 64;  // per process

struct Device {
  int ordinal = -1, processors = 0, major = 0, minor = 0;
  bool has_dependent_launch() const { return major >= 9; }  // programmatic dependent launch
};

// Memory that a kernel works with besides its operands, and how much of each it needs. A workspace
// belongs to one stream at a time. Kernels that run one after another can share it: scratch is dead
// at a kernel's end, and every launch leaves the counters that it used at zero.
struct Workspace {
  static constexpr int kArguments = 2;  // of a call from Python
  void* scratch;      // any content, aligned by 256
  unsigned* arrivals;  // zeroed once, when they are allocated
};
struct WorkspaceSize {
  size_t scratch = 0, arrivals = 0;  // bytes
};

constexpr long blocks_of(long n, long block) { return (n + block - 1) / block; }
constexpr long covering_power_of_two(long least) {
  long p = 1;
  while (p < least) p *= 2;
  return p;
}

// Whether all addresses can be read four elements at a time, 16 bytes or fewer.
template <class... T> bool aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % (sizeof(T) < 4 ? 4 * sizeof(T) : 16) == 0) && ...);
}

// Whether kernels wait for the one before: those compiled for older devices than Hopper do not, wherever
// they run, and must not start beside it.
constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
constexpr bool kWaitsOnGrids = kCompiledFor[0] >= 900;

enum class LaunchMode {
  after,        // once the kernel before has ended
  overlapping,  // its prologue may run beside the end of the kernel before (it waits before it reads)
  cooperative,  // overlapping, and with all blocks resident at once
};

// Kernels that call sync_dependent_grids() first start like this.
inline LaunchMode launch_mode_on(const Device& device) {
  return device.has_dependent_launch() ? LaunchMode::overlapping : LaunchMode::after;
}

// How many blocks; cluster: so many at a time share memory and barriers (Hopper).
struct Blocks {
  unsigned count, cluster;
  Blocks(unsigned count, unsigned cluster = 1) : count(count), cluster(cluster) {}
};

#ifdef __CUDACC_RTC__  // names that the host's templates have, of which NVRTC makes nothing
Error error(const char* format, ...);
Error current_device(Device& device);
Error grid_of(long blocks, unsigned& grid);
template <class... Given> Error allow_shared(const Given&...);
template <class... Given> Error launch(const Given&...);
#else
inline Error error(const char* format, ...) {
  static thread_local char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

inline Error checked(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return nullptr;
  cudaGetLastError();  // an error that is reported here must not be reported again elsewhere
  return error("%s: %s (%s)", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

inline Error current_device(Device& device) {
  static std::atomic<unsigned> known[kDevices];  // processors << 16 | major << 8 | minor
  RF_TRY(checked(cudaGetDevice(&device.ordinal), "asking for the current device"));
  if (device.ordinal >= kDevices) return error("device %d: at most %d are known", device.ordinal, kDevices);
  unsigned facts = known[device.ordinal].load(std::memory_order_relaxed);
  if (facts == 0) {
    const char* doing = "asking what the device can do";
    int processors, major, minor;
    RF_TRY(checked(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.ordinal), doing));
    RF_TRY(checked(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.ordinal), doing));
    RF_TRY(checked(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.ordinal), doing));
    facts = unsigned(processors) << 16 | unsigned(major) << 8 | unsigned(minor);
    known[device.ordinal].store(facts, std::memory_order_relaxed);
  }
  device.processors = facts >> 16, device.major = facts >> 8 & 255, device.minor = facts & 255;
  return nullptr;
}

// Makes of a kernel's address what CUDA's runtime takes for it.
#ifdef RF_APART  // its address is a row's, which runtime/nvrtc.py writes
template <class Kernel> Error find(Kernel*& kernel, const Device& device) {
  const bool own = device.major == kCompiledFor[0] / 100;
  void* handle = nullptr;
  RF_TRY(rf_handle(reinterpret_cast<void*>(kernel), own ? 0 : 1, &handle));
  kernel = reinterpret_cast<Kernel*>(handle);
  return nullptr;
}
#else
template <class Kernel> Error find(Kernel*&, const Device&) { return nullptr; }
#endif

// Lets a kernel use `bytes` of shared memory on this device; once for each kernel and device.
template <class Kernel>
Error allow_shared(Kernel* kernel, size_t bytes, const Device& device, std::atomic<uint64_t>& done) {
  const uint64_t bit = uint64_t(1) << device.ordinal;
  if (done.load(std::memory_order_relaxed) & bit) return nullptr;
  RF_TRY(find(kernel, device));
  RF_TRY(checked(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "asking for the kernel's shared memory"));
  done.fetch_or(bit, std::memory_order_relaxed);
  return nullptr;
}

inline Error grid_of(long blocks, unsigned& grid) {
  if (blocks > INT32_MAX) return error("a launch of %ld blocks: at most 2^31 - 1 are possible", blocks);
  grid = static_cast<unsigned>(blocks);
  return nullptr;
}

template <class... Takes, class... Gives>
Error launch(void (*kernel)(Takes...), Blocks blocks, unsigned threads, size_t shared, cudaStream_t stream,
             LaunchMode start, const char* doing, const Gives&... arguments) {
  Device device;
  RF_TRY(current_device(device));
  RF_TRY(find(kernel, device));
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks.count), config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared, config.stream = stream;
  config.attrs = attributes;
  if (start == LaunchMode::cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (kWaitsOnGrids && start != LaunchMode::after && device.has_dependent_launch()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (blocks.cluster > 1) {
    auto& cluster = attributes[config.numAttrs].val.clusterDim;
    attributes[config.numAttrs++].id = cudaLaunchAttributeClusterDimension;
    cluster.x = blocks.cluster, cluster.y = cluster.z = 1;
  }
  return checked(cudaLaunchKernelEx(&config, kernel, static_cast<Takes>(arguments)...), doing);
}

// Makes a device the current one while it lives. Failing to is seen by the launch that follows.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != ordinal) moved_ = cudaSetDevice(ordinal) == cudaSuccess;
  }
  ~OnDevice() {
    if (moved_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool moved_ = false;
};

inline std::mutex launches;

// Launches the kernels of one call on a device, which the calling thread leaves as it found it. A stream's calls share
// its workspace, where one kernel leaves what the next reads: no other thread's kernels may come between them.
template <class Call> Error launch_on(long device, const Call& call) {
  const OnDevice here(static_cast<int>(device));
  const std::lock_guard<std::mutex> alone(launches);
  return call();
}
#endif

}  // namespace rf

// Run: a kernel from Python, on the stream and device that it says last. Entries synchronise and allocate nothing.
//
//   RF_KERNEL(name, (parameters), call)     launches on the stream `on`, with the workspace `work`
//   RF_ON_STREAM(name, (parameters), call)  launches on the stream `on`
//   RF_WORKSPACE(name, function)            name_workspace_size: the bytes that the kernel works in, by a function of
//                                           WorkspaceSize& and what Python gives
#ifdef __CUDACC_RTC__
#define RF_ON_STREAM(...)
#define RF_KERNEL(...)
#define RF_WORKSPACE(...)
#else
#include <Python.h>


[[maybe_unused]] static inline PyObject* rf_result(rf::Error error) {
  if (error == nullptr) Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, error);
  return nullptr;
}

namespace rf {

// Calls `run` with its parameters, on the device that the last argument is the number of.
template <class... P> static inline PyObject* launched(Error (*run)(P...), PyObject* const* args, Py_ssize_t n) {
  return rf_called(run, 1, args, n, [run](const auto& given, PyObject* const* device) -> PyObject* {
    const long on = RfArgument{*device};
    if (PyErr_Occurred()) return nullptr;
    Error error;
    Py_BEGIN_ALLOW_THREADS
    error = launch_on(on, [&] { return std::apply(run, given); });
    Py_END_ALLOW_THREADS
    return rf_result(error);
  });
}

template <class... P>
static inline PyObject* workspace_size_of(Error (*run)(WorkspaceSize&, P...), PyObject* const* args, Py_ssize_t n) {
  Error (*const takes)(P...) = nullptr;
  return rf_called(takes, 1, args, n, [run](const auto& given, PyObject* const* device) -> PyObject* {
    const long on = RfArgument{*device};
    if (PyErr_Occurred()) return nullptr;
    const OnDevice here(static_cast<int>(on));
    WorkspaceSize size;
    const Error error = std::apply([&](auto... p) { return run(size, p...); }, given);
    if (error) return rf_result(error);
    return Py_BuildValue("nn", Py_ssize_t(size.scratch), Py_ssize_t(size.arrivals));
  });
}

}  // namespace rf

#define RF_ON_STREAM(name, parameters, ...)                                                               \
  static rf::Error name##_of(RF_LIST parameters, cudaStream_t on) { return __VA_ARGS__; }                 \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {                        \
    return rf::launched(name##_of, args, n);                                                              \
  }                                                                                                       \
  RF_METHOD(name, name##_called)
#define RF_KERNEL(name, parameters, ...) RF_ON_STREAM(name, (RF_LIST parameters, rf::Workspace work), __VA_ARGS__)
#define RF_WORKSPACE(name, ...)                                                                           \
  static PyObject* name##_sized(PyObject*, PyObject* const* args, Py_ssize_t n) {                         \
    return rf::workspace_size_of(__VA_ARGS__, args, n);                                                   \
  }                                                                                                       \
  RF_METHOD(name##_workspace_size, name##_sized)
#endif

// Functor: the names that generated bodies are written in, for CUDA.
//
// Why: a body (struct Matmul0 {...}) is one C++ text for every backend. On the CPU its lanes `Vec`
// are a SIMD vector and a position `C` is a run of columns; here a lane is one float and a position
// is one column index, so each thread runs the body once for each element that it holds.
//
// All arithmetic is in `Real`, float32 unless a file says otherwise before it comes here; elements of
// other types are converted as they are loaded and stored.
//
// Layout: data row after row; offsets and rows are 64-bit, columns 32-bit.
#include <cuda_runtime.h>

#include <cstdint>

#define RF_FN __device__ __forceinline__

#ifndef RF_REAL
#define RF_REAL float
#endif

namespace rf {

using Real = RF_REAL;
using Vec = Real;
constexpr unsigned kFullMask = 0xffffffffu;  // all lanes of a warp
template <int S> struct Step { static constexpr int index = S; };
template <class... M> struct List { static constexpr int size = sizeof...(M); };

// Calls f(Step<i>, monoid) for each monoid of a list.
template <int S, class F> RF_FN void for_monoids(List<>, F&&) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F&& f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}

// What memory holds, by one element; narrow.cuh has the same for elements of 16 bits. Never by __ldg: the
// kernel starts beside the end of the one before, which may still write what is read here, and the
// assembler takes memory read so for constant: it moves such loads before the wait.
template <class T> RF_FN Real read_one(const T* p) { return *p; }
// A mask as zeros and ones: as PyTorch has it, any byte but zero is true.
RF_FN Real read_one(const bool* p) { return *reinterpret_cast<const unsigned char*>(p) != 0; }
template <class T> RF_FN void write_one(T* p, Real v) { *p = v; }
// Next to each other from p + more on; together: by one access, which p + more is aligned for. Written so it stays one: the
// compiler takes the assignment of a float2 apart.
template <bool Together, class T> RF_FN void write_vec2(T* p, int more, Real first, Real second) {
  if constexpr (Together && sizeof(T) == 4) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p + more), "f"(float(first)), "f"(float(second)));
  } else {
    p[more] = first;
    p[more + 1] = second;
  }
}
// The same of what is read.
struct Vec2 { Real first, second; };
template <class T> RF_FN Vec2 read_vec2(const T* p) {
  if constexpr (sizeof(T) == 4) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    return {v.x, v.y};
  } else {
    return {read_one(p), read_one(p + 1)};
  }
}
// Whether p[row * width + col] is aligned for two pairs of columns wherever col is a multiple of four.
template <class T> RF_FN bool in_pairs(const T* p, long width) {
  constexpr int kBytes = sizeof(T) < 4 ? 4 * sizeof(T) : 16;
  return width * sizeof(T) % kBytes == 0 && reinterpret_cast<uintptr_t>(p) % kBytes == 0;
}

template <class V> RF_FN V lanes(Real x) { return x; }
template <class V, class T> RF_FN V scalar(const T* p) { return read_one(p); }
template <class V, class T, class C> RF_FN V column(const T* p, C col) { return read_one(p + col); }
template <class V, class T, class C> RF_FN V full(const T* p, long offset, C col) {
  return read_one(p + offset + col);
}
template <class T, class C> RF_FN void put(T* p, long offset, C col, Real v) { write_one(p + offset + col, v); }
template <class T> RF_FN void put(T* p, long offset, Real v) { write_one(p + offset, v); }

// Two columns that one thread holds: a body's store(row, ColumnPair<Together>{col, more, next}, v) writes v to col +
// more and `next` beside it. more: a constant, so that a row's stores share an address; the compiler would rather
// compute each anew if it could see into it.
template <bool Together> struct ColumnPair {
  int col, more;
  Real next;
};
template <bool Together, class T> RF_FN void put(T* p, long offset, ColumnPair<Together> pair, Real v) {
  long first = offset + pair.col;
  asm("" : "+l"(first));
  write_vec2<Together>(p + first, pair.more, v, pair.next);
}

// One of a pair of columns that a thread computes, one after the other: what a body reads of a row for the first is
// read for both, and kept for the second in the order in which bodies read.
struct ColumnOfPair {
  int col;  // the first one's
  bool second;
  Real* cache;
  int* next;  // of kept
  template <class T> RF_FN Real read(const T* p) const {
    if (second) return cache[(*next)++];
    const Vec2 v = read_vec2(p + col);
    cache[(*next)++] = v.second;
    return v.first;
  }
};
template <class V, class T> RF_FN V column(const T* p, ColumnOfPair col) { return read_one(p + col.col + col.second); }
template <class V, class T> RF_FN V full(const T* p, long offset, ColumnOfPair col) { return col.read(p + offset); }

// Two such pairs, the second 8 columns after the first; all lanes of the warp store theirs.
struct TwoColumnPairs {
  int col, more;
  Real next[3];
};
template <class T> RF_FN void write_pairs(T* p, int more, Real v, const Real (&next)[3]) {
  write_vec2<true>(p, more, v, next[0]);
  write_vec2<true>(p, more + 8, next[1], next[2]);
}
// Lanes 2 i and 2 i + 1 have columns next to each other: one takes the first pairs of both, the other one the second,
// 16 bytes each: half as many stores, 64 bytes of a row each.
RF_FN void write_pairs(float* p, int more, Real v, const Real (&next)[3]) {
  const bool odd = threadIdx.x % 2;
  const float got = __shfl_xor_sync(kFullMask, odd ? v : next[1], 1);
  const float got_next = __shfl_xor_sync(kFullMask, odd ? next[0] : next[2], 1);
  const float4 four = odd ? make_float4(got, got_next, next[1], next[2]) : make_float4(v, next[0], got, got_next);
  // volatile: exchanges stay behind the stores before them, whose registers they need
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p + more + (odd ? 6 : 0)), "f"(four.x), "f"(four.y),
               "f"(four.z), "f"(four.w) : "memory");
}
template <class T> RF_FN void put(T* p, long offset, const TwoColumnPairs& pairs, Real v) {
  long first = offset + pairs.col;
  asm("" : "+l"(first));
  write_pairs(p + first, pairs.more, v, pairs.next);
}

RF_FN Real where(bool mask, Real yes, Real no) { return mask ? yes : no; }

// A product that is rounded whatever is added to it: of values that are computed twice, for their maximum and for
// the distance from it, both have the same bits.
template <class V> RF_FN V mul_rn(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return __fmul_rn(a, b);
  else return __dmul_rn(a, b);
}

}  // namespace rf

// Math: the functions that generated bodies call, as accurate as PyTorch's own CUDA kernels.
//
// Every function is the full-precision one of CUDA's math library (at most 2 ulp for those used
// here), or ours where that one branches: nothing compiled from this file may be built with
// -use_fast_math, which would change them silently. Minimum and maximum give NaN where either side
// is NaN, as torch does and fmaxf does not.

#ifdef __FAST_MATH__
#error "-use_fast_math trades the accuracy that is promised here: build without it"
#endif

namespace rf {

#define RF_MATH(name, call)                          \
  RF_FN Real name(Real x) {                          \
    if constexpr (sizeof(Real) == 4) return ::call##f(x); \
    else return ::call(x);                           \
  }
RF_MATH(exp, exp) RF_MATH(expm1, expm1) RF_MATH(log, log) RF_MATH(log1p, log1p) RF_MATH(sqrt, sqrt)
RF_MATH(rsqrt, rsqrt) RF_MATH(sin, sin) RF_MATH(cos, cos) RF_MATH(tanh, tanh)
RF_MATH(abs, fabs) RF_MATH(floor, floor) RF_MATH(ceil, ceil) RF_MATH(trunc, trunc) RF_MATH(round, rint)
#undef RF_MATH
RF_FN Real pow(Real x, Real y) {
  if constexpr (sizeof(Real) == 4) return ::powf(x, y);
  else return ::pow(x, y);
}
RF_FN Real fma(Real x, Real y, Real z) {
  if constexpr (sizeof(Real) == 4) return ::fmaf(x, y, z);
  else return ::fma(x, y, z);
}
RF_FN Real infinity() { return __int_as_float(0x7f800000); }
RF_FN bool is_nan(Real x) { return x != x; }
RF_FN bool is_finite(Real x) { return abs(x) < infinity(); }
RF_FN bool is_infinite(Real x) { return abs(x) == infinity(); }
// Floats by one instruction; doubles in words.
RF_FN float larger_or_nan(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
RF_FN float smaller_or_nan(float a, float b) {
  float m;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
RF_FN Real maximum(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return larger_or_nan(a, b);
  else return is_nan(a) || a > b ? a : b;
}
RF_FN Real minimum(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return smaller_or_nan(a, b);
  else return is_nan(a) || a < b ? a : b;
}
RF_FN Real relu(Real x) { return maximum(x, 0.0f); }
// To a unit in the last place. Division as IEEE has it branches for what is subnormal, and what branches is computed
// one after another.
RF_FN Real reciprocal(Real x) {
  if constexpr (sizeof(Real) == 4) {
    float r;
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(static_cast<float>(x)));
    return r;
  }
  return Real(1) / x;
}
RF_FN Real sigmoid(Real x) { return reciprocal(Real(1) + exp(-x)); }
// To a unit in the last place. CUDA's branches, so that of many numbers one is computed after another. Up to one a series,
// beyond it 1 - 2^(a polynomial of |x|), in float one from 4 on.
RF_FN Real erf(Real x) {
  if constexpr (sizeof(Real) == 8) return ::erf(x);
  const float v = static_cast<float>(x), z = v * v, a = fminf(fabsf(v), 4.0f);
  float series = 7.85385770e-5f, power = 3.03894369e-4f, rest;
  series = fmaf(series, z, -8.01019254e-4f), power = fmaf(power, a, -4.59779566e-3f);
  series = fmaf(series, z, 5.18832775e-3f), power = fmaf(power, a, 3.28912400e-2f);
  series = fmaf(series, z, -2.68538110e-2f), power = fmaf(power, a, -1.51650548e-1f);
  series = fmaf(series, z, 1.12835854e-1f), power = fmaf(power, a, -9.17310894e-1f);
  series = fmaf(series, z, -3.76126260e-1f), power = fmaf(power, a, -1.62805259f);
  series = fmaf(series, z, 1.28379166e-1f);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(power * a));
  return fabsf(v) >= 1.0f ? copysignf(1.0f - rest, v) : fmaf(series, v, v);  // NaN is the series'
}
RF_FN Real gelu(Real x) { return Real(0.5) * x * (Real(1) + erf(x * Real(0.70710678118654752))); }
// tanh(log(1 + e)) by e alone, which is one from 20 on.
RF_FN Real mish(Real x) {
  const Real e = exp(minimum(x, Real(20))), n = e * (e + Real(2));
  return x * (n * reciprocal(n + Real(2)));
}

}  // namespace rf

// Look: the device's side of ../look.h. Kernels that a call may start first compare a few words of the parameters with
// what they were. One block does, beside its work: it costs a pair of loads.

namespace rf {

using rf_watch::Look;

// The look of a body; one that has none looks at nothing.
template <class Body> RF_FN auto look_of(const Body& body, int) -> decltype(body.look) { return body.look; }
template <class Body> RF_FN Look look_of(const Body&, long) { return {}; }

// volatile: other calls may write what is read here while this kernel runs.
RF_FN void look_at_words(const Look& look, unsigned first, unsigned step) {
  const volatile uint32_t* const volatile* words = look.words;
  const volatile uint32_t* expected = look.expected;
  for (unsigned i = first; i < look.count; i += step)
    if (*words[i] != expected[i]) *static_cast<volatile uint32_t*>(look.flag) = look.epoch;
}

// After the kernel waited for the one before, so that what that one wrote is looked at, too; and before any thread of
// the first block returns, since each looks at words of its own.
template <class Body> RF_FN void look_in_first_block(const Body& body) {
  const Look look = look_of(body, 0);
  if (look.count != 0 && blockIdx.x == 0) look_at_words(look, threadIdx.x, blockDim.x);
}

}  // namespace rf

// A look of its own, for a call that starts no kernel that would take it along, or takes the original.

namespace rf {

__global__ void __launch_bounds__(128) look_kernel(Look look) { look_at_words(look, threadIdx.x, blockDim.x); }

#ifndef __CUDACC_RTC__
static Error look_alone(cudaStream_t stream) {
  const Look look = rf_watch::take_look();
  if (look.count == 0) return nullptr;
  return launch(look_kernel, 1, 128, 0, stream, LaunchMode::after, "looking at the parameters", look);
}
static PyObject* look_alone_called(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return launched(look_alone, args, n);
}
RF_METHOD(look_alone, look_alone_called)
#endif

}  // namespace rf

// Sync: what threads, blocks and kernels wait for each other by, beside __syncthreads.

namespace rf {

constexpr int kWarpgroupThreads = 128;  // four warps, which issue a wgmma together

// A named barrier of `threads` threads of the block; number 0 is __syncthreads.
RF_FN void named_barrier_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The same by threads that do not wait themselves.
RF_FN void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- programmatic dependent launch (sm_90; before that, kernels follow each other) -----------------
// Waits for the kernel before this one in the stream: nothing that it wrote may be read before.
RF_FN void wait_on_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel of the stream start its prologue, once every block has said so or ended.
RF_FN void launch_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Both. Nothing is read or written before this.
RF_FN void sync_dependent_grids() {
  launch_dependent_grids();
  wait_on_dependent_grids();
}

}  // namespace rf

// Fragment: what a warpgroup (four warps) holds of a product, 64 MI rows by 32 G columns in 16 G MI registers a thread.
//
// Layout: a warpgroup is four warps that hold a fragment of 64 MI rows and 32 G columns the way the
// tensor cores leave it: acc[mi][16 g + 4 j + 2 h + e] of lane l of warp w is the element
//   row  64 mi + 16 w + 8 h + l / 4,   column  32 g + 8 j + 2 (l % 4) + e.
//
// Elements that tensor cores could not compute are computed again here, before any epilogue sees them.

namespace rf {

// A product's sizes and the memory that its epilogue works with. Pointers may be null if unused.
struct Problem {
  long rows, cols, depth;
  const float* a;        // the unsplit operands, for exceptional values: rows lda and ldb apart, elements of
  const float* b;        // a row a_step and b_step
  long lda, ldb, a_step, b_step;
  const float* a_unscale;  // powers of two that undo the scaling of rows of a and of b
  const float* b_unscale;
  float* row_partials;        // [block of columns][row][row_words]
  float* column_partials;     // [block of rows][column_words][column]
  unsigned* row_arrivals;     // one for each block of rows, zero between launches; null: finalize.cuh merges rows
  int batch_rows, batch_tiles;  // of a batch of products: rows of a of each, and how many tiles cover them
  long a_next, b_next;          // from one product's unsplit operand to the next one's
  RF_FN long row_end() const { return rows; }
  RF_FN long b_row(int col) const { return col; }
  RF_FN const float* a_at(long row) const { return a + row * lda; }
  RF_FN const float* b_at(int col) const { return b + col * ldb; }
};

// The same as one tile of a batch of products sees it. The products lie one below the other, `rows` of a in all;
// each has its own `cols` rows of b, and no tile takes rows of two.
struct BatchProblem : Problem {
  int product, first_row;  // which; the tile's
  RF_FN long row_end() const { return long(product + 1) * batch_rows; }
  RF_FN long b_row(int col) const { return product * cols + col; }
  RF_FN const float* a_at(long row) const { return a + product * a_next + (row - long(product) * batch_rows) * lda; }
  RF_FN const float* b_at(int col) const { return b + product * b_next + col * ldb; }
};
template <int TileRows> RF_FN BatchProblem batch_problem(const Problem& p, int tile_row) {
  const int product = tile_row / p.batch_tiles, down = tile_row - product * p.batch_tiles;
  return {p, product, product * p.batch_rows + down * TileRows};
}

// threadIdx.x, read anew: what an epilogue derives from it is then computed where it is used. The
// compiler would otherwise compute it before the loop over tiles and hold it in registers that the
// products need.
RF_FN int read_tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// The same for blockIdx.x.
RF_FN int read_ctaid_x() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}

// One element by plain float32 arithmetic, by a whole warp: lanes take every 32nd product.
RF_FN float plain_dot(const float* a, long a_step, const float* b, long b_step, long depth, int lane) {
  float sum = 0.0f;
#pragma unroll 1  // it is rare, and callers have few registers left
  for (long k = lane; k < depth; k += 32) sum = fma(a[k * a_step], b[k * b_step], sum);
#pragma unroll
  for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  return sum;
}

template <int MI, int G> struct Fragment {
  float x[MI][16 * G];

  // Moves group 1 to the place of group 0, and so on around.
  RF_FN void rotate(int by_one) {
#pragma unroll
    for (int mi = 0; mi < MI; mi++) {
      if (by_one) {
        const float first = x[mi][0];
#pragma unroll
        for (int i = 0; i + 1 < 16 * G; i++) x[mi][i] = x[mi][i + 1];
        x[mi][16 * G - 1] = first;
      } else if (G > 1) {
        float first[16];
#pragma unroll
        for (int i = 0; i < 16; i++) first[i] = x[mi][i];
#pragma unroll
        for (int i = 0; i + 16 < 16 * G; i++) x[mi][i] = x[mi][i + 16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[mi][16 * (G - 1) + i] = first[i];
      }
    }
  }

  // Elements that are not finite, from an operand that holds an infinity or a NaN, once more in
  // float32: a split infinity is inf + (inf - inf), so the tensor cores give NaN where float32 may
  // give an infinity. Finite operands never come here: scaled halves cannot overflow; but for rows of a that
  // come as they are (not AScaled) and are so large that they overflow while b is still scaled. What b's
  // scaling is undone with must then come first, for all of the warp's elements: true if it was.
  template <bool AScaled, class P> RF_FN bool repair(const P& p, int row0, int col0) {
    float none[4] = {};  // 0 times what is not finite is NaN: half the time of a comparison
#pragma unroll
    for (int mi = 0; mi < MI; mi++)
#pragma unroll
      for (int i = 0; i < 16 * G; i++) none[i % 4] = fma(x[mi][i], 0.0f, none[i % 4]);
    if (!__any_sync(kFullMask, none[0] + none[1] + none[2] + none[3] != 0.0f)) return false;
    const int thread = read_tid_x(), lane = thread % 32, warp = thread / 32 % 4;
#pragma unroll 1
    for (int i = 0; i < 16 * G; i++) {
#pragma unroll
      for (int mi = 0; mi < MI; mi++) {
        const int row = row0 + 64 * mi + 16 * warp + 8 * (i / 2 % 2) + lane / 4;
        const int col = col0 + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        if constexpr (!AScaled) x[mi][0] *= p.b_unscale[p.b_row(min(col, static_cast<int>(p.cols) - 1))];
        unsigned todo = __ballot_sync(
            kFullMask, !is_finite(x[mi][0]) && row < p.row_end() && col < p.cols);
        for (; todo; todo &= todo - 1) {
          const int owner = __ffs(todo) - 1;
          const long r = __shfl_sync(kFullMask, row, owner);
          const int c = __shfl_sync(kFullMask, col, owner);
          const float dot = plain_dot(p.a_at(r), p.a_step, p.b_at(c), p.b_step, p.depth, lane);
          if (lane == owner) x[mi][0] = dot;
        }
      }
      rotate(true);
    }
    return !AScaled;
  }
};

}  // namespace rf

// Reductions that keep one number: what they make of two, `of(a, b)`, and what they start from.
//
// A struct here, and a row of the op table that names it as its monoid, give a reduction to all kernels: of rows,
// columns and products, on the CPU and on CUDA. `of` must not care how values are grouped, rounding aside, and
// `of(start(), a)` must be a. V is a number, or lanes of numbers on the CPU. How partials are accumulated and merged,
// always in the same order, stands in each target's monoid header, as `Folded`.

namespace rf {

template <class Op> struct Folded;

struct LargerOf {
  static RF_FN Real start() { return -infinity(); }
  template <class V> static RF_FN V of(V a, V b) { return maximum(a, b); }
};
using Max = Folded<LargerOf>;

struct SmallerOf {
  static RF_FN Real start() { return infinity(); }
  template <class V> static RF_FN V of(V a, V b) { return minimum(a, b); }
};
using Min = Folded<SmallerOf>;

}  // namespace rf

// Monoids: what rows and columns are reduced by, and how partial results merge in a fixed order.
//
// Why: a tile leaves one partial result for each of its rows (or columns) in a workspace; whoever
// comes last merges them first tile to last. The order never depends on who that is, so a result is
// the same bits on every run, and no float is ever added atomically.
//
// A monoid has
//   Partial        what travels in registers and in the workspace (kWords floats)
//   accumulate(p, x)   takes one more value;   merge(p, q) takes another partial
//   accumulate_batch(p, x, in)   takes those of several values that count   (if kWords > 1)
//   State          what the final, ordered merge keeps (a sum carries what its additions rounded off)
//   partial(state)   a partial again
//   kResults, results(state, out)          what the body's finalize_row is given

namespace rf {

struct SumState {
  Real value = 0.0f, lost = 0.0f;
  RF_FN Real get() const { return value + lost; }
  RF_FN void add(Real x) {
    const Real total = value + x;
    // what the addition rounded off (Neumaier); no meaning once the total is infinite or NaN
    if (is_finite(total)) lost += abs(value) >= abs(x) ? (value - total) + x : (x - total) + value;
    else lost = 0.0f;
    value = total;
  }
};

struct Sum {
  struct Partial { Real w[1]; };
  using State = SumState;
  static constexpr int kWords = 1, kResults = 1;
  static RF_FN Partial identity() { return {{0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] += x; }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] += q.w[0]; }
  static RF_FN void merge(State& s, const Partial& q) { s.add(q.w[0]); }
  static RF_FN Partial partial(const State& s) { return {{s.get()}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.get(); }
};

// The sum of values and the sum of their squares.
struct SumAndSquares {
  struct Partial { Real w[2]; };
  struct State { SumState sum, squares; };
  static constexpr int kWords = 2, kResults = 2;
  static RF_FN Partial identity() { return {{0.0f, 0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] += x, p.w[1] += x * x; }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] += q.w[0], p.w[1] += q.w[1]; }
  static RF_FN void merge(State& s, const Partial& q) { s.sum.add(q.w[0]), s.squares.add(q.w[1]); }
  static RF_FN Partial partial(const State& s) { return {{s.sum.get(), s.squares.get()}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.sum.get(), out[1] = s.squares.get(); }
};

template <class Op> struct Folded {
  struct Partial { Real w[1]; };
  struct State {
    Real value = Op::start();
    RF_FN Real get() const { return value; }
  };
  static constexpr int kWords = 1, kResults = 1;
  static RF_FN Partial identity() { return {{Op::start()}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] = Op::of(p.w[0], x); }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] = Op::of(p.w[0], q.w[0]); }
  static RF_FN void merge(State& s, const Partial& q) { s.value = Op::of(s.value, q.w[0]); }
  static RF_FN Partial partial(const State& s) { return {{s.value}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.value; }
};

// The largest value m and sum of exp(x - m). Exponents are taken from `exp_base`: exp(inf - inf) would
// be NaN where log(sum(exp)) is plainly infinite. Only what is subtracted is replaced: a partial that
// holds nothing, or only -infinity, has m = -infinity and weighs exp(-inf - base) = 0 whatever the
// base.
struct ExpPartial { Real w[2]; };
struct ExpState {
  Real max = LargerOf::start(), sum = 0.0f;
};
RF_FN Real exp_base(Real m) { return is_infinite(m) ? 0.0f : m; }
struct LogSumExp {
  using Partial = ExpPartial;
  using State = ExpState;
  static constexpr int kWords = 2, kResults = 1;
  static RF_FN Partial identity() { return {{LargerOf::start(), 0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) {
    if (x <= p.w[0]) {  // the common case costs one exponential
      p.w[1] += exp(x - exp_base(p.w[0]));
    } else {
      const Real m = maximum(p.w[0], x), base = exp_base(m);
      p.w[1] = p.w[1] * exp(p.w[0] - base) + exp(x - base);
      p.w[0] = m;
    }
  }
  // Several values, of which some count: one exponential each and one for what came before.
  template <int N> static RF_FN void accumulate_batch(Partial& p, const Real (&x)[N], const bool (&in)[N]) {
    Real m = p.w[0];
#pragma unroll
    for (int i = 0; i < N; i++) m = in[i] ? maximum(m, x[i]) : m;
    const Real base = exp_base(m);
    Real sum = p.w[1] * exp(p.w[0] - base);
#pragma unroll
    for (int i = 0; i < N; i++) sum += in[i] ? exp(x[i] - base) : 0.0f;
    p.w[0] = m, p.w[1] = sum;
  }
  static RF_FN void merge(Partial& p, const Partial& q) {
    const Real m = maximum(p.w[0], q.w[0]), base = exp_base(m);
    p.w[1] = p.w[1] * exp(p.w[0] - base) + q.w[1] * exp(q.w[0] - base);
    p.w[0] = m;
  }
  static RF_FN void merge(State& s, const Partial& q) {
    Partial p{{s.max, s.sum}};
    merge(p, q);
    s = {p.w[0], p.w[1]};
  }
  static RF_FN Partial partial(const State& s) { return {{s.max, s.sum}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = log(s.sum) + exp_base(s.max); }
};

// The same state given as it is, for a softmax in two steps: exp(x - out[0]) / out[1].
struct Softmax : LogSumExp {
  static constexpr int kResults = 2;
  static RF_FN void results(const State& s, Real* out) {
    out[0] = s.max;
    // a row whose largest value is infinite has no softmax: exp(inf - inf) is NaN
    out[1] = is_infinite(s.max) ? __int_as_float(0x7fffffff) : s.sum;
  }
};

// The same where a logsumexp is made of it: of an infinite maximum the sum is that of exp(x).
struct LogSumExpState : LogSumExp {
  static constexpr int kResults = 2;
  static RF_FN void results(const State& s, Real* out) { out[0] = s.max, out[1] = s.sum; }
};

// Mean and sum of squared deviations of a row in one pass. Values come in batches, whose own are merged into the
// others' by Chan's formula: E[x^2] - E[x]^2 would cancel.
struct RowMoments {
  struct Partial { Real w[3]; };  // count, mean, m2
  using State = Partial;
  static constexpr int kWords = 3, kResults = 2;
  static RF_FN Partial identity() { return {{0.0f, 0.0f, 0.0f}}; }
  template <int N> static RF_FN void accumulate_batch(Partial& p, const Real (&x)[N], const bool (&in)[N]) {
    Partial q = identity();
#pragma unroll
    for (int i = 0; i < N; i++) q.w[0] += in[i] ? 1.0f : 0.0f, q.w[1] += in[i] ? x[i] : 0.0f;
    const Real one = 1.0f / maximum(q.w[0], 1.0f);
    q.w[1] *= one;
    Real left = 0.0f;  // by the mean's rounding: of equal values the mean is exact, and no deviation is left
#pragma unroll
    for (int i = 0; i < N; i++) {
      const Real d = in[i] ? x[i] - q.w[1] : 0.0f;
      left += d, q.w[2] += d * d;
    }
    const Real share = left * one, more = left * share;
    if (is_finite(more)) q.w[1] += share, q.w[2] -= more;
    merge(p, q);
  }
  static RF_FN void merge(Partial& p, const Partial& q) {
    if (q.w[0] == 0.0f) return;
    const Real total = p.w[0] + q.w[0], delta = q.w[1] - p.w[1], share = q.w[0] / total;
    p.w[1] += delta * share;
    p.w[2] += q.w[2] + delta * (delta * (p.w[0] * share));  // 0 where p holds nothing, however large delta is
    p.w[0] = total;
  }
  static RF_FN Partial partial(const State& s) { return s; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.w[1], out[1] = s.w[2]; }
};

// Count, mean and sum of squared deviations of a column, merged by Chan's formula: E[x^2] - E[x]^2
// would cancel. The count of a partial is known from its rows and travels apart.
struct MomentsState {
  Real count = 0.0f, mean = 0.0f, m2 = 0.0f;
  RF_FN void merge(const MomentsState& o) {
    if (o.count == 0.0f) return;
    const Real total = count + o.count, delta = o.mean - mean, share = o.count / total;
    mean += delta * share;
    m2 += o.m2 + delta * (delta * (count * share));  // 0 where this holds nothing, however large delta is
    count = total;
  }
};
struct Moments { static constexpr int kWords = 2, kResults = 0; };

// How much the second of two partials weighs, n rows of the first and m of the second; the same for all
// columns, so that its division is done once.
struct Weight {
  Real share = 0.0f, cross = 0.0f;  // m / (n + m), and n times that
  Weight() = default;
  RF_FN Weight(Real n, Real m) : share(m == 0.0f ? 0.0f : m / (n + m)), cross(n * share) {}
};

// A monoid down a column: partials with their counts of rows.
template <class M> struct Down {
  using Partial = typename M::Partial;
  using State = typename M::State;
  static constexpr int kWords = M::kWords;
  // The partial of R values of which some count; share: one over how many do, 0 if none.
  template <int R> static RF_FN Partial of(const Real (&x)[R], const bool (&in)[R], Real share) {
    Partial p = M::identity();
#pragma unroll
    for (int i = 0; i < R; i++)
      if (in[i]) M::accumulate(p, x[i]);
    return p;
  }
  static RF_FN Partial merge(Partial p, const Partial& q, Weight) {
    M::merge(p, q);
    return p;
  }
  static RF_FN void merge(State& s, const Partial& q, Real) { M::merge(s, q); }
};
template <> struct Down<Moments> {
  struct Partial { Real w[2]; };  // mean, m2
  using State = MomentsState;
  static constexpr int kWords = 2;
  template <int R> static RF_FN Partial of(const Real (&x)[R], const bool (&in)[R], Real share) {
    Partial p{{in[0] ? x[0] : 0.0f, 0.0f}};
#pragma unroll
    for (int i = 1; i < R; i++) p.w[0] += in[i] ? x[i] : 0.0f;
    p.w[0] *= share;
    Real left = 0.0f;  // as of rows
#pragma unroll
    for (int i = 0; i < R; i++) {
      const Real d = in[i] ? x[i] - p.w[0] : 0.0f;
      left += d, p.w[1] += d * d;
    }
    const Real mean_more = left * share, m2_more = left * mean_more;
    if (is_finite(m2_more)) p.w[0] += mean_more, p.w[1] -= m2_more;
    return p;
  }
  static RF_FN Partial merge(const Partial& p, const Partial& q, Weight w) {
    const Real delta = q.w[0] - p.w[0];
    return {{p.w[0] + delta * w.share, p.w[1] + q.w[1] + delta * (delta * w.cross)}};
  }
  static RF_FN void merge(State& s, const Partial& q, Real m) { s.merge({m, q.w[0], q.w[1]}); }
};

// Whether each of a thread's lanes has a partial of its own; partials then merge to the same bits in either order.
template <class M> constexpr bool kByLane = M::kWords == 1;
template <> inline constexpr bool kByLane<SumAndSquares> = true;

// Words of the workspace that one row (or column) of partial results takes, and results of a row.
template <class L> struct Words;
template <class... M> struct Words<List<M...>> {
  static constexpr int row = (0 + ... + M::kWords);
  static constexpr int results = (0 + ... + M::kResults);
  static constexpr int column = (0 + ... + Down<M>::kWords);
};

// The same for the monoids before the S-th: where its words and results start.
template <int S, class L> struct Before;
template <class M, class... Rest> struct Before<0, List<M, Rest...>> {
  static constexpr int row = 0, results = 0, column = 0;
};
template <int S, class M, class... Rest> struct Before<S, List<M, Rest...>> {
  using Less = Before<S - 1, List<Rest...>>;
  static constexpr int row = M::kWords + Less::row;
  static constexpr int results = M::kResults + Less::results;
  static constexpr int column = Down<M>::kWords + Less::column;
};

}  // namespace rf

// Column reduce: how the lanes of a warp that have rows of the same columns reduce their partial results.
//
// Layout: the fragment's (fragment.cuh). Lanes 4 i + k, for i from 0 to 7, have other rows of the same columns.

namespace rf {

// How the partials of a column weigh that three exchanges merge (reduce_columns_across_lanes), seen from this lane.
// Whole: each lane's rows all count, so that the weights are constants.
template <int Rows, bool Whole> struct ColumnWeights {
  Weight step[3];
  float share, warp_count;  // one over the thread's rows; the rows of all eight lanes
  RF_FN ColumnWeights(float count, int lane) : share(count > 0.0f ? 1.0f / count : 0.0f), warp_count(count) {
    if (Whole) share = 1.0f / Rows, warp_count = Rows;
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const float other = Whole ? warp_count : __shfl_xor_sync(kFullMask, warp_count, 16 >> i);
      step[i] = Weight(warp_count, other);
      warp_count += other;
    }
  }
};

// Eight lanes hold partials of the same 8 columns. Three exchanges halve the columns that a lane keeps and double
// the rows that it covers: 7 exchanges a word, where summing each column across the lanes would take 24. One
// column a lane is left, in partial[0]: its number among the 8.
template <class D, class Weights>
RF_FN int reduce_columns_across_lanes(typename D::Partial (&partial)[8], const Weights& weights, int lane) {
  int mine = 0;
#pragma unroll
  for (int step = 0; step < 3; step++) {
    const int half = 4 >> step, mask = 16 >> step;
    const bool upper = lane & mask;
#pragma unroll
    for (int i = 0; i < half; i++) {
      typename D::Partial got;
#pragma unroll
      for (int w = 0; w < D::kWords; w++) {
        const float send = upper ? partial[i].w[w] : partial[i + half].w[w];
        if (upper) partial[i].w[w] = partial[i + half].w[w];
        got.w[w] = __shfl_xor_sync(kFullMask, send, mask);
      }
      partial[i] = D::merge(partial[i], got, weights.step[step]);
    }
    if (upper) mine += half;
  }
  return mine;
}

}  // namespace rf

// Row reduce: a fragment's rows, reduced in registers and across the four lanes that share them; and the merge of the
// partial results that fragments leave of a row.

namespace rf {

// Merges a row's `blocks` partial results of M, `stride` floats apart, in order. The loads of a batch
// are in flight together: what is read here is in the L2, hundreds of cycles away.
template <class M> RF_FN typename M::State merge_partials(const float* partials, long stride, int blocks) {
  constexpr int kBatch = 16 / M::kWords;
  typename M::State state;
#pragma unroll 1
  for (int t = 0; t < blocks; t += kBatch) {
    typename M::Partial partial[kBatch];
    const float* at = partials;
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partial[i].w[w] = __ldcg(at + w);
      if (t + i + 1 < blocks) at += stride;  // beyond the last, read it again
    }
    partials = at;
#pragma unroll
    for (int i = 0; i < kBatch; i++)
      if (t + i < blocks) M::merge(state, partial[i]);
  }
  return state;
}

// This fragment's partial of monoid M for each of its rows, to partials[row * pitch]. One monoid at a time:
// what several would keep for each row at once does not fit in the registers.
template <class M, int MI, int G>
RF_FN void reduce_rows(Fragment<MI, G>& acc, const Problem& p, int row0, int col0, int thread,
                       int pitch, float* partials) {
  const int lane = thread % 32, warp = thread / 32;
  typename M::Partial partial[2 * MI];
#pragma unroll
  for (int r = 0; r < 2 * MI; r++) partial[r] = M::identity();
  auto accumulate = [&](int g, int from) {
    bool in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = col0 + 32 * g + 8 * (i / 2) + 2 * (lane % 4) + i % 2 < p.cols;
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; i++) x[i] = acc.x[r / 2][from + 4 * (i / 2) + 2 * (r % 2) + i % 2];
      if constexpr (M::kWords > 1) {
        M::accumulate_batch(partial[r], x, in);
      } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
          if (in[i]) M::accumulate(partial[r], x[i]);
      }
    }
  };
  if constexpr (M::kWords == 1) {
#pragma unroll
    for (int g = 0; g < G; g++) accumulate(g, 16 * g);  // an instruction or two an element
  } else {
#pragma unroll 1
    for (int g = 0; g < G; g++) {
      accumulate(g, 0);
      acc.rotate(false);
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * MI; r++) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      typename M::Partial other;
#pragma unroll
      for (int w = 0; w < M::kWords; w++)
        other.w[w] = __shfl_xor_sync(kFullMask, partial[r].w[w], mask);
      M::merge(partial[r], other);  // only lanes that come first in their pairs are read in the end
    }
    const long row = row0 + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4;
    if (lane % 4 == 0 && row < p.rows)
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partials[row * pitch + w] = partial[r].w[w];
  }
}

}  // namespace rf

// Epilogue: what happens to a tile of the product while it is still in registers.
//
// A body gives
//   value(acc, row, col)                    the epilogue: the result from the product's element
//   kLight                                  whether that is a few instructions
//   kBatched                                whether it is of a batch of products (BatchProblem): they reduce nothing
//   store(row, col, v)                      writes it                          (if kStores)
//   kReads, in_pairs()                      how many values of rows value() reads; whether two columns of them, and of
//                                           what is stored, can be taken by one access
//   RowMonoids = List<...>                  each reduces v along the row
//   finalize_row(row, const float* results)   takes what a row was reduced to
//   ColumnMonoids = List<...>               each reduces v down the column
//   Column                                  what a column is reduced to        (if any)
//   set_column(Step<S>, column, state)      takes one result into it
//   finalize_column(column, col)              writes results
//   kQuantized                              the column monoid that is the moments of v (if it may be stored quantized:
//                                           as Quantizing<Body>, quantized_store.cuh)
//
// Layout: the fragment's (fragment.cuh). Rows are reduced in registers and across the four lanes that
// share them; columns across the eight lanes that share them, then across warps through shared memory.
// Each warpgroup leaves one partial result for a row or column of its fragment in the workspace. Where a row has few
// the last warpgroup to arrive at a block of rows merges its rows' first to last (arrivals are counted by integer
// atomics; floats are only ever merged in order); more of them, and columns, are left to finalize.cuh.
//
// Shared memory: EpilogueStorage, one for each warpgroup: column partials of its four warps (512 bytes a word and 32
// columns), scales of its columns, counts. Registers: the fragment's 32 G MI / 2, in place, and what the body takes.
//
// A whole fragment's columns are read and stored in pairs, where operands and results are aligned so. (Results alone
// that are not are stored one by one; with operands it is taken like a fragment that is cut.) Its groups of 32
// columns are taken by an unrolled loop where the body is light, else by one that rotates the registers: an unrolled
// body is 4 times the instructions to compile and to fetch, the rotation costs 4 moves an element.

namespace rf {

// What a body of a product is unless it says otherwise: one that stores the product.
struct MatmulBody {
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
  static constexpr bool kStores = true, kLight = true, kBatched = false;
  static constexpr int kReads = 0;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_FN bool in_pairs() const { return true; }
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

// What a warpgroup's epilogue has in shared memory.
template <class Body, int G> struct EpilogueStorage {
  static constexpr int kWords = Words<typename Body::ColumnMonoids>::column;
  float columns[4][kWords > 0 ? kWords : 1][32 * G];
  alignas(8) float unscale[32 * G];
  float counts[4];
  bool agree[4];
  unsigned arrival;
};

// A body whose value is stored quantized. A type of its own: one kernel of both ways would have registers for both.
template <class Body> struct Quantizing;
template <class Body> constexpr bool kQuantizes = false;
template <class Body> constexpr bool kQuantizes<Quantizing<Body>> = true;
// Whether column monoid S is the moments of what is quantized: they are taken with it.
template <class Body, class S> constexpr bool kTakenLater = false;
template <class Body, class S>
constexpr bool kTakenLater<Quantizing<Body>, S> = S::index == Body::kQuantized;

// Whether a power of two is far from the ends of float32's range.
RF_FN bool is_ordinary(float unscale) { return unscale > 0x1p-60f && unscale < 0x1p60f; }

// Whether this warpgroup is the last of `warpgroups` to come here; what the others wrote before is visible.
RF_FN bool last_to_arrive(unsigned* arrivals, unsigned warpgroups, unsigned* shared, int barrier,
                          int thread) {
  __threadfence();
  named_barrier_sync(barrier, kWarpgroupThreads);
  if (thread == 0) *shared = atomicInc(arrivals, warpgroups - 1);  // back to 0 after the last
  named_barrier_sync(barrier, kWarpgroupThreads);
  const bool last = *shared == warpgroups - 1;
  named_barrier_sync(barrier, kWarpgroupThreads);  // `shared` may be written again
  if (last) __threadfence();
  return last;
}

// Whether `mine` holds for all threads of the warpgroup, which meet here.
template <class Shared> RF_FN bool all_agree(Shared& shared, bool mine, int barrier) {
  const bool warp = !__any_sync(kFullMask, !mine);
  if (read_tid_x() % 32 == 0) shared.agree[read_tid_x() / 32 % 4] = warp;
  named_barrier_sync(barrier, kWarpgroupThreads);
  return shared.agree[0] && shared.agree[1] && shared.agree[2] && shared.agree[3];
}

// The rows of a fragment that a thread holds elements of: 8 (r % 2) + 64 (r / 2) below its first.
template <int MI, bool AScaled> struct FragmentRows {
  static constexpr int kRows = 2 * MI;
  int row[kRows];      // one beyond the result's last is read like that, never counted
  bool in[kRows];
  float unscale[kRows], count = 0.0f;  // what undoes their scaling; how many count
  template <class P> RF_FN FragmentRows(const P& p, int row0, int lane, int warp) {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      row[r] = row0 + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4;
      in[r] = row[r] < p.row_end();
      if (!in[r]) row[r] = static_cast<int>(p.row_end()) - 1;
      count += in[r];
      unscale[r] = AScaled ? p.a_unscale[row[r]] : 1.0f;
    }
  }
};

// Group g of a fragment's columns, which stands `at` in its rows: values, stores, partials of its columns. Whole: no
// edge of the result cuts the fragment, its scales are ordinary, and what the body reads of rows it reads in pairs.
// unscaled: b's scaling has been undone. in_pairs: whether the body stores in pairs; it does if it reads so.
template <bool Whole, bool AScaled, bool BScaled, int MI, int G, class Body, class P>
RF_FN void column_group(const Body& body, const P& p, Fragment<MI, G>& acc, const FragmentRows<MI, AScaled>& rows,
                 const ColumnWeights<2 * MI, Whole>& weights, int col0, int g, int at, bool unscaled, bool in_pairs,
                 EpilogueStorage<Body, G>& shared) {
  constexpr int kRows = 2 * MI;
  constexpr bool kStores = Body::kStores && !kQuantizes<Body>;  // what is quantized is stored at the end
  const int lane = read_tid_x() % 32, warp = read_tid_x() / 32 % 4;
  const int first = col0 + 2 * (lane % 4), last = static_cast<int>(p.cols) - 1;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int pair = first + 32 * g + 8 * j;
    const int col[2] = {Whole ? pair : min(pair, last), Whole ? pair + 1 : min(pair + 1, last)};
    float2 unscale = make_float2(1.0f, 1.0f);
    if constexpr (AScaled && BScaled)
      unscale = *reinterpret_cast<const float2*>(&shared.unscale[32 * g + 8 * j + 2 * (lane % 4)]);
    else if constexpr (BScaled)
      if (!unscaled) unscale = make_float2(p.b_unscale[p.b_row(col[0])], p.b_unscale[p.b_row(col[1])]);
    const float column_unscale[2] = {unscale.x, unscale.y};
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
      const long row = rows.row[r];
      Real pair_cache[Body::kReads > 0 ? Body::kReads : 1];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        // ordinary factors, or the smaller one first: no step leaves float32's range unless the result does
        if constexpr (AScaled && Whole)
          x[e] = x[e] * rows.unscale[r] * column_unscale[e];
        else if constexpr (AScaled)
          x[e] = x[e] * fminf(rows.unscale[r], column_unscale[e]) * fmaxf(rows.unscale[r], column_unscale[e]);
        else if constexpr (BScaled)
          x[e] = x[e] * column_unscale[e];
        int next = 0;
        if constexpr (Whole)
          x[e] = body.template value<float>(x[e], row, ColumnOfPair{pair, e == 1, pair_cache, &next});
        else x[e] = body.template value<float>(x[e], row, col[e]);
      }
    }
    if constexpr (kStores && !Whole) {  // no load has to wait for a store
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        const float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
        const long row = rows.row[r];
        if (rows.in[r] && pair < last && in_pairs) body.store(row, ColumnPair<true>{pair, 0, x[1]}, x[0]);
        else if (rows.in[r] && pair < last) body.store(row, ColumnPair<false>{pair, 0, x[1]}, x[0]);
        else if (rows.in[r] && pair == last) body.store(row, pair, x[0]);
      }
    }
  }
  if constexpr (kStores && Whole) {
    // what is known of g where the loop over groups is unrolled: the rest is added to the row's address once
    const int known = Body::kLight ? 32 * g : 0, column = first + 32 * g - known;
    const auto store = [&](auto pairs) {
#pragma unroll
      for (int r = 0; r < kRows; r++)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          const float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
          const long row = rows.row[r];
          if constexpr (decltype(pairs)::index != 0) {
            body.store(row, TwoColumnPairs{column, known + 8 * j, {x[1], x[4], x[5]}}, x[0]);
          } else {
            body.store(row, ColumnPair<false>{column, known + 8 * j, x[1]}, x[0]);
            body.store(row, ColumnPair<false>{column, known + 8 * j + 8, x[5]}, x[4]);
          }
        }
    };
    if (Body::kReads > 0 || in_pairs) store(Step<1>{});
    else store(Step<0>{});
  }
  for_monoids<0>(typename Body::ColumnMonoids{}, [&](auto s, auto monoid) {
    if constexpr (kTakenLater<Body, decltype(s)>) return;
    using D = Down<decltype(monoid)>;
    constexpr int word = Before<decltype(s)::index, typename Body::ColumnMonoids>::column;
    typename D::Partial partial[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float x[kRows];
      bool in[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++)
        x[r] = acc.x[r / 2][at + 4 * (i / 2) + 2 * (r % 2) + i % 2], in[r] = Whole || rows.in[r];
      partial[i] = D::template of<kRows>(x, in, weights.share);
    }
    const int mine = reduce_columns_across_lanes<D>(partial, weights, lane);
    const int at_column = 32 * g + 8 * (mine / 2) + 2 * (lane % 4) + mine % 2;
#pragma unroll
    for (int w = 0; w < D::kWords; w++) shared.columns[warp][word + w][at_column] = partial[0].w[w];
    if (lane == 0) shared.counts[warp] = weights.warp_count;
  });
}

// The epilogue of one warpgroup's fragment, whose first element is (row0, col0), but for its arrival.
// AScaled, BScaled: whose rows were scaled; where halves were, elements that are not finite are computed
// again. barrier: a number of the warpgroup's own, from 1. Every thread of the warpgroup comes here.
template <bool AScaled, bool BScaled, int MI, int G, class Body, class P>
RF_FN void epilogue(const Body& body, const P& p, Fragment<MI, G>& acc, int row0, int col0,
                    EpilogueStorage<Body, G>& shared, int barrier) {
  using RowMonoids = typename Body::RowMonoids;
  using ColumnMonoids = typename Body::ColumnMonoids;
  constexpr int kRowWords = Words<RowMonoids>::row, kColumnWords = Words<ColumnMonoids>::column;
  static_assert(!Body::kBatched || kRowWords + kColumnWords == 0, "a batch of products reduces nothing");
  if (row0 >= p.row_end() || col0 >= p.cols) return;
  bool unscaled = false;
  if constexpr (BScaled) unscaled = acc.template repair<AScaled>(p, row0, col0);

  const int thread = read_tid_x() % kWarpgroupThreads, lane = thread % 32, warp = thread / 32;
  bool ordinary = true;  // whether all of the warp's factors are far from the ends of float32's range
  if constexpr (AScaled && BScaled) {  // one load of a thread, where each group of columns would wait for its own
    const float unscale = p.b_unscale[p.b_row(min(col0 + thread % (32 * G), static_cast<int>(p.cols) - 1))];
    named_barrier_sync(barrier, kWarpgroupThreads);  // the last tile's have been read
    if (thread < 32 * G) shared.unscale[thread] = unscale;
    ordinary = all_agree(shared, is_ordinary(unscale), barrier);
  }
  const FragmentRows<MI, AScaled> rows(p, row0, lane, warp);
  if constexpr (AScaled && BScaled) {
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) ordinary &= is_ordinary(rows.unscale[r]);
    ordinary = !__any_sync(kFullMask, !ordinary);
  }
  const bool in_pairs = body.in_pairs(), inside = row0 + 64 * MI <= p.row_end() && col0 + 32 * G <= p.cols;
  // IeeeRS's registers are full: it has none for addresses that several groups share.
  if (AScaled == BScaled && inside && ordinary && (in_pairs || Body::kReads == 0)) {  // as most are
    const ColumnWeights<2 * MI, true> weights(rows.count, lane);
    if constexpr (Body::kLight) {
#pragma unroll
      for (int g = 0; g < G; g++) {
        column_group<true, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 16 * g, unscaled, in_pairs, shared);
        // Loads stay behind stores; without any, those of all groups would come first, more than registers hold.
        if constexpr (!Body::kStores) __syncwarp();
      }
    } else {
#pragma unroll 1
      for (int g = 0; g < G; g++) {
        column_group<true, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 0, unscaled, in_pairs, shared);
        acc.rotate(false);
      }
    }
  } else {
    const ColumnWeights<2 * MI, false> weights(rows.count, lane);
#pragma unroll 1
    for (int g = 0; g < G; g++) {
      column_group<false, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 0, unscaled, in_pairs, shared);
      acc.rotate(false);
    }
  }

  if constexpr (kRowWords > 0)
    for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
      reduce_rows<decltype(monoid)>(acc, p, row0, col0, thread, kRowWords,
                                    p.row_partials + col0 / (32 * G) * p.rows * kRowWords +
                                        Before<decltype(s)::index, RowMonoids>::row);
    });

  const long block = row0 / (64 * MI), mine = col0 + thread;
  if constexpr (kColumnWords > (kQuantizes<Body> ? Down<Moments>::kWords : 0)) {
    named_barrier_sync(barrier, kWarpgroupThreads);
    if (thread < 32 * G && mine < p.cols)
      for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
        if constexpr (kTakenLater<Body, decltype(s)>) return;
        using D = Down<decltype(monoid)>;
        constexpr int at = Before<decltype(s)::index, ColumnMonoids>::column;
        typename D::Partial partial, next;
        float n = shared.counts[0];
#pragma unroll
        for (int w = 0; w < D::kWords; w++) partial.w[w] = shared.columns[0][at + w][thread];
#pragma unroll
        for (int i = 1; i < 4; i++) {
#pragma unroll
          for (int w = 0; w < D::kWords; w++) next.w[w] = shared.columns[i][at + w][thread];
          partial = D::merge(partial, next, Weight(n, shared.counts[i]));
          n += shared.counts[i];
        }
#pragma unroll
        for (int w = 0; w < D::kWords; w++)
          p.column_partials[(block * kColumnWords + at + w) * p.cols + mine] = partial.w[w];
      });
    named_barrier_sync(barrier, kWarpgroupThreads);  // `shared` may be written again
  }
  if constexpr (kQuantizes<Body>) {
    constexpr int at = Before<Body::kQuantized, ColumnMonoids>::column;
    float* moments = p.column_partials + (block * kColumnWords + at) * p.cols;
    if (inside && in_pairs) store_quantized(Step<1>{}, body, p, acc, rows, row0, col0, moments, shared, barrier);
    else store_quantized(Step<0>{}, body, p, acc, rows, row0, col0, moments, shared, barrier);
  }
}

// Counts the arrival of the fragment at (row0, col0), whose epilogue has been done; whoever comes last to a
// block of rows finalizes it, unless a kernel of its own will.
template <int MI, int G, class Body>
RF_FN void arrive_and_finalize_rows(const Body& body, const Problem& p, int row0, int col0,
                     EpilogueStorage<Body, G>& shared, int barrier) {
  using RowMonoids = typename Body::RowMonoids;
  constexpr int kRowWords = Words<RowMonoids>::row;
  if (row0 >= p.rows || col0 >= p.cols) return;

  if constexpr (kRowWords > 0) {
    if (p.row_arrivals == nullptr) return;
    const int thread = read_tid_x() % kWarpgroupThreads;
    const int blocks = (static_cast<int>(p.cols) + 32 * G - 1) / (32 * G);
    const long mine = row0 + thread;
    if (last_to_arrive(p.row_arrivals + row0 / (64 * MI), blocks, &shared.arrival, barrier, thread) &&
        thread < 64 * MI && mine < p.rows) {
      float results[Words<RowMonoids>::results];
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        using M = decltype(monoid);
        using At = Before<decltype(s)::index, RowMonoids>;
        M::results(merge_partials<M>(p.row_partials + mine * kRowWords + At::row, p.rows * kRowWords, blocks),
                   results + At::results);
      });
      body.finalize_row(mine, results);
    }
  }
}

}  // namespace rf

// Elements: the types of 16 bits in memory.
#include <cstdint>

namespace rf {

struct Half {
  static constexpr bool kBfloat = false;
  uint16_t bits;
};
struct Bfloat {
  static constexpr bool kBfloat = true;
  uint16_t bits;
};

}  // namespace rf

// Ptx for sm_80 and later: the instructions of the generic product, and what every kernel needs of
// shared memory and of the kernel before it.
//
// Layout: fragments of a warp as the instructions define them; lane l holds of a tile [8 rows, 16 bytes]
// that ldmatrix reads the four bytes 4 (l % 4) of row l / 4.

namespace rf {

RF_FN uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- copies to shared memory that the copying thread does not wait for -----------------------------
// 16 bytes, of which the first `bytes` are read and the others are zero.
RF_FN void cp_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
RF_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `Left` of this thread's committed groups are under way.
template <int Left> RF_FN void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
RF_FN void store_shared_v4(uint32_t to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// --- matrix products of one warp ---------------------------------------------------------------------
// Four tiles [8, 16 bytes]; lane l gives the address of row l % 8 of tile l / 8.
RF_FN void ldmatrix(uint32_t (&tile)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(address)
               : "memory");
}

// d[16 x 8] += a[16 x 16] * b[8 x 16]^T: d[2 h + e] of lane l is row 8 h + l / 4, column 2 (l % 4) + e.
template <class T>
RF_FN void mma_sync(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (T::kBfloat)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace rf

// Mode: how the operands of a product are given and multiplied on tensor cores, and in which order its
// tiles are taken.
//
// Ieee: fp32 split into two scaled fp16 values, three products of four; fp32's accuracy.
// IeeeRS: the same, but a comes as fp32 and is split on its way to the tensor cores (mainloop_rs_sm90.cuh).
// Tf32: one scaled fp16 value, whose ten bits are TF32's; where the user allows TF32.
// Native<Half>, Native<Bfloat>: 16-bit operands as they are. Native<T, 2>: b is given as two 16-bit terms, hi and lo,
// that add up to it, one after the other along k; a is taken once for each.

namespace rf {

// kScaled: rows of b are scaled by powers of two; and those of a, unless it comes as it is (kRS).
// kStageDepth: of k in the 128 bytes of a stage's row.
struct Ieee {
  using Type = Half;
  static constexpr bool kSplit = true, kScaled = true, kRS = false;
  static constexpr int kStageDepth = 32, kTerms = 1;
};
struct IeeeRS : Ieee {
  static constexpr bool kRS = true;
};
struct Tf32 {
  using Type = Half;
  static constexpr bool kSplit = false, kScaled = true, kRS = false;
  static constexpr int kStageDepth = 64, kTerms = 1;
};
template <class T, int Terms = 1> struct Native {
  using Type = T;
  static constexpr bool kSplit = false, kScaled = false, kRS = false;
  static constexpr int kStageDepth = 64, kTerms = Terms;
};

// The t-th tile of a grid of tiles: bands of 8 tiles of rows, column after column, so that blocks at work
// at a time read few rows and columns and the L2 serves them again. Every other band goes
// from the last column to the first, whose columns the cache has at hand.
RF_FN void tile_at(int t, int tile_rows, int tile_cols, int& row, int& col) {
  constexpr int kBand = 8;
  const int band = t / (kBand * tile_cols), top = band * kBand;
  const int high = tile_rows - top < kBand ? tile_rows - top : kBand;
  const int in_band = t - top * tile_cols, right = in_band / high;
  row = top + in_band % high;
  col = band % 2 ? tile_cols - 1 - right : right;
}

}  // namespace rf

// Hi/lo split: rows of fp32 as hi and lo, scaled fp16 each, ready for the tensor cores.
//
// Why: x * 2^e = hi + lo with fp16 hi and lo keeps 22 bits if neither is subnormal. Each row is scaled
// by the power of two that takes its largest value to [2^14, 2^15): exact, undone by the epilogue, and
// as far from fp16's subnormals as can be (elements down to 2^-17 of the row's largest keep all 22
// bits, smaller ones an absolute error of 2^-39 of it).
//
// Layout: out[row] is `depth` rounded up to 32. Ieee: 32 hi then 32 lo for every 32 of k, 128 bytes,
// which is one row of a stage of the product's pipeline. Among the 32, k = 8 q + 4 s + 2 h + e lies at
// 16 s + 8 h + 2 q + e: the four k that lane q of a fragment of tensor cores holds of slice s of 16 are
// next to each other in fp32, so that a row that comes as fp32 can be read by 16 bytes (mainloop_rs_sm90.cuh).
// Tf32: hi only, in order. What is beyond `depth` is zero.
// unscale[row] = 2^-e. An infinity or NaN leaves its row unscaled; the product computes every element
// that it reaches again in fp32.
//
// One block a row, of short ones some lanes of a warp. Every thread's values of a row, up to 32 or 64 values, is
// loaded at once and stays in registers from the search for the largest value to the conversion; what a row of
// more than 32768 has beyond that is read a second time, from a cache. Bound by memory: 4 bytes read and 4 (Ieee)
// or 2 (Tf32) written an element.
//
//   kernel                   threads                        registers (a thread)      shared memory
//   hi_lo_split_rows         128, 256 or 512, one row       51 to 64; of 512: 110     a word a warp
//   hi_lo_split_short_rows   256: 8, 16 or 32 lanes a row   32; of 8 vectors 64, 76   none
#include <cuda_fp16.h>


namespace rf {

// Four values of a row from k on; zero beyond its end. Aligned: x is, by 16 bytes, and depth by 4.
template <bool Aligned> RF_FN float4 load_four(const float* x, int k, int depth) {
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if constexpr (Aligned) {
    if (k < depth) v = __ldcs(reinterpret_cast<const float4*>(x + k));  // read once: leave the cache to out
  } else {
    if (k < depth) v.x = x[k];
    if (k + 1 < depth) v.y = x[k + 1];
    if (k + 2 < depth) v.z = x[k + 2];
    if (k + 3 < depth) v.w = x[k + 3];
  }
  return v;
}

// The exponent e that takes |largest| to [2^14, 2^15), within what a power of two can be in fp32.
RF_FN int scale_exponent(float largest) {
  if (largest == 0.0f || !is_finite(largest)) return 0;
  int exponent;
  ::frexpf(largest, &exponent);  // largest = f * 2^exponent, f in [1/2, 1)
  const int e = 15 - exponent;
  return e > 126 ? 126 : e;
}
RF_FN float power_of_two(int e) { return __int_as_float((e + 127) << 23); }  // -126 <= e <= 127

// The larger of `most` and four absolute values as bits, which order as the values do; a NaN is above
// infinity.
RF_FN unsigned larger(unsigned most, float4 v) {
  constexpr unsigned kNoSign = 0x7fffffffu;
  most = max(most, max(__float_as_uint(v.x) & kNoSign, __float_as_uint(v.y) & kNoSign));
  return max(most, max(__float_as_uint(v.z) & kNoSign, __float_as_uint(v.w) & kNoSign));
}

// Four values from k on, of which the other lanes of eight hold what is next to them. Pairs: the lanes that
// hold k and k ^ 8 exchange halves, so that each writes 8 bytes of hi and of lo.
template <bool Pairs> RF_FN void put_hi_lo(__half* out, int k, float4 v, float scale) {
  const float4 x = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
  __half2 hi[2] = {__floats2half2_rn(x.x, x.y), __floats2half2_rn(x.z, x.w)};
  if constexpr (!Pairs) {
    *reinterpret_cast<uint2*>(out + k) = *reinterpret_cast<const uint2*>(hi);
  } else {
    __half2 lo[2] = {__floats2half2_rn(x.x - __low2float(hi[0]), x.y - __high2float(hi[0])),
                     __floats2half2_rn(x.z - __low2float(hi[1]), x.w - __high2float(hi[1]))};
    const unsigned eight = 0xffu << (threadIdx.x & 24);
    const bool odd = k & 8;
    const __half2 got_hi = __shfl_xor_sync(eight, odd ? hi[0] : hi[1], 2);
    const __half2 got_lo = __shfl_xor_sync(eight, odd ? lo[0] : lo[1], 2);
    (odd ? hi[0] : hi[1]) = got_hi;
    (odd ? lo[0] : lo[1]) = got_lo;
    __half* to = out + k / 32 * 64 + (k & 4) * 4 + (k & 8) + (k & 16) / 4;
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(hi);
    *reinterpret_cast<uint2*>(to + 32) = *reinterpret_cast<const uint2*>(lo);
  }
}

// Values of a row that a thread holds; the longest rows by more, since 512 threads can have 128 registers
// each where 1024 have 64.
// Half as many without alignment, where there is more to keep besides.
template <bool Aligned, int Threads>
constexpr int kHeldValues = (Threads == 512 ? 64 : 32) / (Aligned ? 1 : 2);

template <bool Pairs, bool Aligned, int Threads>
__global__ void __launch_bounds__(Threads, Threads == 512 ? 1 : 1024 / Threads)
    hi_lo_split_rows(const float* x, long ld, int depth, int padded, __half* out,
               float* unscale) {
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  const long row = blockIdx.x;
  x += row * ld;
  out += row * (Pairs ? 2 : 1) * padded;
  constexpr int kHeld = kHeldValues<Aligned, Threads> / 4;
  constexpr int kReach = 4 * kHeld * Threads;
  const int first = 4 * threadIdx.x;
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; i++) held[i] = load_four<Aligned>(x, first + 4 * i * Threads, depth);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) most = larger(most, held[i]);
  constexpr int kMore = Aligned ? 8 : 4;  // in flight of what is not held
#pragma unroll 1
  for (int k = first + kReach; k < depth; k += 4 * kMore * Threads) {
    float4 more[kMore];
#pragma unroll
    for (int i = 0; i < kMore; i++) more[i] = load_four<Aligned>(x, k + 4 * i * Threads, depth);
#pragma unroll
    for (int i = 0; i < kMore; i++) most = larger(most, more[i]);
  }

  __shared__ unsigned of_warp[Threads / 32];
  most = __reduce_max_sync(kFullMask, most);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Threads / 32; i++) most = max(most, of_warp[i]);
  const int e = scale_exponent(__uint_as_float(most));
  const float scale = power_of_two(e);
  if (threadIdx.x == 0) unscale[row] = power_of_two(-e);

#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int k = first + 4 * i * Threads;
    if (k < padded) put_hi_lo<Pairs>(out, k, held[i], scale);
  }
#pragma unroll 1
  for (int k = first + kReach; k < padded; k += 4 * kMore * Threads) {
    float4 more[kMore];
#pragma unroll
    for (int i = 0; i < kMore; i++) more[i] = load_four<Aligned>(x, k + 4 * i * Threads, depth);
#pragma unroll
    for (int i = 0; i < kMore; i++)
      if (k + 4 * i * Threads < padded) put_hi_lo<Pairs>(out, k + 4 * i * Threads, more[i], scale);
  }
}

// Short rows: `lanes` of a warp, a power of two from 8, take one, up to 4 Units values each.
template <bool Pairs, bool Aligned, int Units>
__global__ void __launch_bounds__(256, Units > 2 ? 3 : 4)
    hi_lo_split_short_rows(const float* x, long ld, long rows, int depth, int padded, int lanes, __half* out,
                     float* unscale) {
  wait_on_dependent_grids();
  launch_dependent_grids();
  const int lane = threadIdx.x % lanes;
  const long mine = blockIdx.x * long(256 / lanes) + threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
  float4 held[Units];
#pragma unroll
  for (int i = 0; i < Units; i++) held[i] = load_four<Aligned>(x + row * ld, 4 * (lane + i * lanes), depth);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < Units; i++) most = larger(most, held[i]);
  for (int mask = lanes / 2; mask; mask /= 2) most = max(most, __shfl_xor_sync(kFullMask, most, mask));
  const int e = scale_exponent(__uint_as_float(most));
  if (mine >= rows) return;  // as one for all lanes of a row
  if (lane == 0) unscale[row] = power_of_two(-e);
#pragma unroll
  for (int i = 0; i < Units; i++) {
    const int k = 4 * (lane + i * lanes);
    if (k < padded) put_hi_lo<Pairs>(out + row * (Pairs ? 2 : 1) * padded, k, held[i], power_of_two(e));
  }
}

}  // namespace rf

// Operand: the host side that all products share: operands, their splitting, the workspace.
//
// An emitter instantiates, for each product of a plan,
//   rf::hi_lo_split<Ieee>(x, rows, depth, ld, out, unscale, stream)        activations each call, weights once
//   rf::matmul<S>(body, a, b, depth, workspace, stream)
// with sizes from rf::split_bytes and rf::workspace_bytes<S, Body>. On Hopper a may come unsplit (data null):
// matmul then splits it in the workspace, some rows at a time. The schedule S names the kernel:
//   Schedule<Mode, tile, split-K>   launch_sm90.cuh        Hopper
//   Generic<Mode, split-K>          launch_sm80.cuh   sm_80 and later
//   Plain                           launch_plain.cuh  fp32 as it is, for what is tiny or odd
// A workspace belongs to one stream at a time; its arrival counters are zeroed once, when they are allocated: every
// launch leaves them zero.

namespace rf {

inline long padded_depth(long depth) { return (depth + 31) / 32 * 32; }

// Bytes of a matrix [rows, depth] once split for Mode (aligned by 16 or more).
template <class Mode> size_t split_bytes(long rows, long depth) {
  return static_cast<size_t>(rows) * padded_depth(depth) * (Mode::kSplit ? 4 : 2);
}

template <bool Pairs, bool Aligned>
Error launch_hi_lo_split(const float* x, long rows, long depth, long ld, __half* out, float* unscale,
                         cudaStream_t stream) {
  constexpr const char* doing = "launching the splitting of an operand";
  const int padded = static_cast<int>(padded_depth(depth));
  if (depth <= 1024) {
    const long lanes = depth <= 32 ? 8 : depth <= 64 ? 16 : 32;
    auto* kernel = depth <= 256 ? hi_lo_split_short_rows<Pairs, Aligned, 2> : hi_lo_split_short_rows<Pairs, Aligned, 8>;
    return launch(kernel, static_cast<unsigned>(blocks_of(rows, 256 / lanes)), 256, 0, stream, LaunchMode::overlapping,
                  doing, x, ld, rows, static_cast<int>(depth), padded, static_cast<int>(lanes), out, unscale);
  }
  // as few threads as hold a row
  auto* kernel = hi_lo_split_rows<Pairs, Aligned, 512>;
  unsigned threads = 512;
  if (depth <= 128 * kHeldValues<true, 128>) kernel = hi_lo_split_rows<Pairs, Aligned, 128>, threads = 128;
  else if (depth <= 256 * kHeldValues<true, 256>) kernel = hi_lo_split_rows<Pairs, Aligned, 256>, threads = 256;
  return launch(kernel, static_cast<unsigned>(rows), threads, 0, stream, LaunchMode::overlapping, doing, x, ld,
                static_cast<int>(depth), padded, out, unscale);
}

// x [rows, depth], rows ld apart, fp32 -> out (split_bytes) and unscale [rows].
template <class Mode>
Error hi_lo_split(const float* x, long rows, long depth, long ld, void* out, float* unscale, cudaStream_t stream) {
  static_assert(Mode::kScaled, "native operands are not hi_lo_split");
  if (rows == 0) return nullptr;
  if (depth <= 0 || depth > INT32_MAX / 2 || rows > INT32_MAX)
    return error("an operand [%ld, %ld]: sizes are from 1 to 2^30", rows, depth);
  const bool aligned = depth % 4 == 0 && ld % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  auto* to = static_cast<__half*>(out);
  return aligned ? launch_hi_lo_split<Mode::kSplit, true>(x, rows, depth, ld, to, unscale, stream)
                 : launch_hi_lo_split<Mode::kSplit, false>(x, rows, depth, ld, to, unscale, stream);
}

// One operand of a product: data as the tensor cores read it, and the fp32 rows that it was split from
// (ld and unscale are not used by native modes, whose rows are `pitch` elements apart; Plain uses plain,
// which points to what its schedule says, and ld alone).
struct Operand {
  const void* data;
  long rows;
  long pitch;  // pairs of bytes from row to row; a multiple of 8
  const float* unscale = nullptr;
  const float* plain = nullptr;
  long ld = 0;
  long batches = 1;  // of `b`: how many matrices follow one another, each for as many rows of a
  long step = 1;     // between the elements of a row of plain
};
inline Operand batch_of(Operand b, long batches) {
  b.batches = batches;
  return b;
}
// An operand whose plain matrices are transposed, [depth, rows]: rows, those of one.
inline Operand transposed(Operand side, long rows) {
  side.ld = 1, side.step = rows;
  return side;
}
template <class Mode>
Operand split_operand(const void* data, const float* unscale, const float* plain, long rows, long depth, long ld) {
  return {data, rows, padded_depth(depth) * (Mode::kSplit ? 2 : 1), unscale, plain, ld};
}

// Elements of two bytes in a row of `a` and of `b` as the tensor cores read it.
template <class M> long a_elements(long depth) {
  return M::kScaled ? padded_depth(depth) * (M::kSplit ? 2 : 1) : depth;
}
template <class M> long b_elements(long depth) {
  return M::kTerms == 1 ? a_elements<M>(depth) : M::kTerms * blocks_of(depth, M::kStageDepth) * M::kStageDepth;
}

// An operand [rows, depth] of fp32 as it is, rows ld apart.
inline Operand plain_operand(const float* plain, long rows, long ld) { return {nullptr, rows, 0, nullptr, plain, ld}; }

// The same as operand a of IeeeRS: x is aligned by 16 bytes, ld a multiple of 4.
inline Operand rs_operand(const float* x, long rows, long ld) { return {x, rows, 2 * ld, nullptr, x, ld}; }

inline size_t aligned_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Defined in finalize.cuh, which only bodies that reduce rows or columns need.
template <class Body> Error finalize_columns(const Body& body, const Problem& p, long block_rows, cudaStream_t stream);
template <class Body> Error finalize_rows(const Body& body, const Problem& p, long blocks, cudaStream_t stream);

// How the epilogue partitions a product, by fragments of fragment_rows x fragment_cols: the workspace's first
// scratch and counters are its, what a kernel needs besides comes after them.
template <class Body> struct Partition {
  long rows, cols, fragment_rows, row_blocks, column_blocks;
  static constexpr int kRowWords = Words<typename Body::RowMonoids>::row;
  static constexpr int kColumnWords = Words<typename Body::ColumnMonoids>::column;
  Partition(long rows, long cols, int fragment_rows, int fragment_cols)
      : rows(rows), cols(cols), fragment_rows(fragment_rows), row_blocks(blocks_of(rows, fragment_rows)),
        column_blocks(blocks_of(cols, fragment_cols)) {}
  size_t row_bytes() const { return aligned_bytes(sizeof(float) * kRowWords * rows * column_blocks); }
  size_t bytes() const { return row_bytes() + aligned_bytes(sizeof(float) * kColumnWords * cols * row_blocks); }
  size_t arrivals() const { return kRowWords ? row_blocks : 0; }
  // Whether a row has so many partials that the last to arrive had better not merge them alone.
  bool rows_apart() const { return kRowWords > 0 && column_blocks > 32; }

  Problem problem(const Operand& a, const Operand& b, long depth, const Workspace& workspace) const {
    Problem p{};
    p.rows = rows, p.cols = cols, p.depth = depth;
    p.a = a.plain, p.b = b.plain, p.lda = a.ld, p.ldb = b.ld, p.a_step = a.step, p.b_step = b.step;
    p.a_unscale = a.unscale, p.b_unscale = b.unscale;
    char* partials = static_cast<char*>(workspace.scratch);
    p.row_partials = reinterpret_cast<float*>(partials);
    p.column_partials = reinterpret_cast<float*>(partials + row_bytes());
    p.row_arrivals = rows_apart() ? nullptr : workspace.arrivals;
    p.batch_rows = static_cast<int>(rows / b.batches);
    p.a_next = a.step == 1 ? rows / b.batches * a.ld : depth * a.step;
    p.b_next = b.step == 1 ? cols * b.ld : depth * b.step;
    return p;
  }

  // What is left to do once the product has been launched.
  Error finalize(const Body& body, const Problem& p, cudaStream_t stream) const {
    if constexpr (kRowWords > 0)
      if (rows_apart()) RF_TRY(finalize_rows(body, p, column_blocks, stream));
    if constexpr (kColumnWords > 0) return finalize_columns(body, p, fragment_rows, stream);
    return nullptr;
  }
};

// The host side of one schedule and body; each launch*.cuh has its schedule's:
//   static Error bytes(rows, cols, unsplit_depth, scratch, arrivals, batches);
//   static Error run(body, a, b, depth, workspace, stream);
template <class S, class Body> struct Product;

// Bytes of a workspace's scratch and counters for a product of `rows` x `cols`, of any depth; unsplit_depth: that
// of a product whose a comes unsplit; batches: Operand's.
template <class S, class Body>
Error workspace_bytes(long rows, long cols, size_t& scratch, size_t& arrivals, long unsplit_depth = 0,
                      long batches = 1) {
  return Product<S, Body>::bytes(rows, cols, unsplit_depth, scratch, arrivals, batches);
}

// body's outputs from the product of a [rows, depth] and b [cols, depth]; of a batch, from those of b.batches
// products [rows / b.batches, depth] and [cols, depth].
template <class S, class Body>
Error matmul(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
             cudaStream_t stream) {
  if (a.rows == 0 || b.rows == 0) return nullptr;
  constexpr long kMost = INT32_MAX - 256;  // the last tile counts on beyond the last row
  if (depth <= 0 || a.rows > kMost || b.rows > kMost || depth > INT32_MAX / 2)
    return error("a product of [%ld, %ld] and [%ld, %ld]: rows are at most 2^31 - 257, the depth from 1 to 2^30",
                 a.rows, depth, b.rows, depth);
  return Product<S, Body>::run(body, a, b, depth, workspace, stream);
}

}  // namespace rf

// Packed: operands of a product as the entries of an emitted module take them.
//
// Layout: a packed operand is one block of memory: the matrix as the tensor cores read it (hi_lo_split.cuh),
// then, aligned by 256, what undoes the scaling of each row.

namespace rf {

template <class Mode> size_t packed_bytes(long rows, long depth) {
  return aligned_bytes(split_bytes<Mode>(rows, depth)) + static_cast<size_t>(rows) * sizeof(float);
}

template <class Mode> float* packed_unscale(void* packed, long rows, long depth) {
  return reinterpret_cast<float*>(static_cast<char*>(packed) + aligned_bytes(split_bytes<Mode>(rows, depth)));
}

// x [rows, depth] without gaps -> packed (packed_bytes of it).
template <class Mode> Error pack(const float* x, void* packed, long rows, long depth, cudaStream_t stream) {
  return hi_lo_split<Mode>(x, rows, depth, depth, packed, packed_unscale<Mode>(packed, rows, depth), stream);
}

// packed: null for an `a` that the product splits itself.
template <class Mode> Operand packed_operand(void* packed, const float* plain, long rows, long depth) {
  if (packed == nullptr) return split_operand<Mode>(nullptr, nullptr, plain, rows, depth, depth);
  return split_operand<Mode>(packed, packed_unscale<Mode>(packed, rows, depth), plain, rows, depth, depth);
}

// A side of a product as Python gives it.
template <class Mode> struct Packed {
  static constexpr int kArguments = 2;
  const float* plain;
  void* packed;
  Operand operator()(long rows, long depth) const { return packed_operand<Mode>(packed, plain, rows, depth); }
};

// One that the product splits itself.
template <class Mode> struct Unsplit {
  static constexpr int kArguments = 1;
  const float* plain;
  Operand operator()(long rows, long depth) const { return packed_operand<Mode>(nullptr, plain, rows, depth); }
};

// Schedules by the sizes of a call, the first that holds.
template <long Most, class S> struct UpToRows {
  using Type = S;
  static bool holds(long rows, long) { return rows <= Most; }
};
template <class S> struct UnalignedDepth {
  using Type = S;
  static bool holds(long, long depth) { return depth % 4 != 0; }
};
template <class First, class... Rest> struct BySize {
  // run(schedule) with the one that holds.
  template <class Run> static Error choose(long rows, long depth, const Run& run) {
    if constexpr (sizeof...(Rest) == 0)
      return run(First{});
    else
      return First::holds(rows, depth) ? run(typename First::Type{}) : BySize<Rest...>::choose(rows, depth, run);
  }
};

// What a product by the body's Schedules works in, for a result of rows x cols; unsplit_depth: see workspace_bytes.
template <class Body>
Error batch_workspace_size(WorkspaceSize& size, long rows, long cols, long unsplit_depth, long batches) {
  return Body::Schedules::choose(rows, unsplit_depth, [&](auto s) {
    return workspace_bytes<decltype(s), Body>(rows, cols, size.scratch, size.arrivals, unsplit_depth, batches);
  });
}
template <class Body> Error matmul_workspace_size(WorkspaceSize& size, long rows, long cols, long unsplit_depth) {
  return batch_workspace_size<Body>(size, rows, cols, unsplit_depth, 1);
}
template <class Body>
Error matmul(const Body& body, long rows, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
             cudaStream_t stream) {
  return Body::Schedules::choose(rows, depth, [&](auto schedule) {
    return matmul<decltype(schedule)>(body, a, b, depth, workspace, stream);
  });
}

}  // namespace rf

// Stream-K: how tiles are dealt out to slots that work side by side.
//
// Slots take tile after tile while there is one for every slot (data-parallel tiles). The tiles that are left over
// would keep some slots waiting for the others: their K, one tile's after another's, is cut into steps and dealt out
// evenly instead. What a slot gets of it ends one tile and may begin the next, whose steps come first: whoever has a
// tile's last steps waits for the others, and they are done by then.
//
//   3 slots, 4 tiles of 6 steps       slot 0   tile 0        | tile 3, steps 0 1
//   (1 tile is left over: 6 steps,    slot 1   tile 1        | tile 3, steps 2 3
//   2 a slot)                         slot 2   tile 2        | tile 3, steps 4 5, reduces all, epilogue
//
// Plain arithmetic: the host decides by it, and it is tested there.

namespace rf {

// What a slot does next: steps begin to end of a tile.
struct WorkTile {
  int tile, begin, end;
  int before;  // steps that the slot has done
};

struct StreamK {
  int steps = 0;  // that cover K
  int data_parallel_tiles = 0;       // that slots take alone
  int data_parallel_iterations = 0;  // of a slot, for those
  unsigned steps_per_slot = 0,
           longer_slots = 0;  // steps of the others that each slot takes, the first `longer` one more

  // Whether `tiles` on `slots` slots leave some over that are worth sharing out: few slots share one then, and an
  // eighth of a tile or more is spared, which takes longer than reducing its partial sums. dear: all tiles cost more if
  // some are shared, 3% where it was measured; a sixteenth of the time must be spared.
  static bool pays(long tiles, long slots, long steps, bool dear = false) {
    constexpr long kReductionSteps = 8;  // what a reduction takes
    const long left = tiles % slots, spared = slots - left;
    if (dear && 16 * spared < (tiles / slots + 1) * slots) return false;
    return 4 * left >= slots && 8 * left <= 7 * slots && spared * steps >= kReductionSteps * slots;
  }
  StreamK() = default;
  StreamK(long tiles, long slots, long steps, bool shared)
      : steps(static_cast<int>(steps)), data_parallel_tiles(static_cast<int>(shared ? tiles - tiles % slots : tiles)) {
    data_parallel_iterations = static_cast<int>((data_parallel_tiles + slots - 1) / slots);
    const long left = (tiles - data_parallel_tiles) * steps;
    steps_per_slot = static_cast<unsigned>(left / slots), longer_slots = static_cast<unsigned>(left % slots);
  }

  // What a slot does in an iteration, tile t if that is its alone; false: nothing any more.
  RF_FN bool next(unsigned slot, int iteration, int t, WorkTile& w) const {
    w.tile = t, w.begin = 0, w.end = steps, w.before = iteration * steps;
    if (iteration < data_parallel_iterations) return t < data_parallel_tiles;
    const unsigned all = steps, from = begin(slot), to = begin(slot + 1), first = from / all;
    const unsigned end = to - first * all, next = end > all ? end - all : 0;  // steps of the tile after the first
    const bool is_next = next > 0 && iteration == data_parallel_iterations;
    w.tile = data_parallel_tiles + first + is_next;
    w.begin = is_next ? 0 : from - first * all, w.end = is_next ? next : end - next;
    w.before = data_parallel_iterations * steps + (is_next ? 0 : next);
    return from < to && iteration <= data_parallel_iterations + (next > 0);
  }
  // Where a slot's steps begin, among those of the tiles left over.
  RF_FN unsigned begin(unsigned slot) const {
    return steps_per_slot * slot + (slot < longer_slots ? slot : longer_slots);
  }
};

}  // namespace rf

// Clusters on Hopper: what the blocks of one share, one instruction each.
#include <cstdint>


namespace rf {

// All threads of all blocks of the cluster; of the block, where it is alone.
RF_FN void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same address in the shared memory of the cluster's block `rank`.
RF_FN uint32_t map_shared_rank(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// To an address of map_shared_rank. The block there must have begun: a cluster_sync lies before it.
RF_FN void store_shared_cluster(uint32_t to, uint32_t word) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

}  // namespace rf

// Ptx on Hopper: the instructions that the product is built from, one small function each.
//
// Why: mbarriers in shared memory, TMA loads of whole tiles, and wgmma, the matrix product of a warpgroup, have no C++
// spelling. Nothing here decides anything.
//
// Layout: a tile in shared memory is rows of 128 bytes, 16-byte pieces permuted inside every eight
// rows (TMA's 128-byte swizzle), and starts at a multiple of 1024 bytes.
#include <cuda.h>


namespace rf {

constexpr int kSwizzleRowBytes = 128;    // a row of a stage
constexpr int kSwizzleAlignment = 1024;  // eight rows, after which the swizzle repeats
constexpr int kMbarrierBytes = 8;

// --- mbarriers in shared memory -----------------------------------------------------------------
RF_FN void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
RF_FN void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
RF_FN void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The same in another block of the cluster (map_shared_rank).
RF_FN void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
RF_FN void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}
// Makes initialised barriers visible to TMA.
RF_FN void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// --- loads and stores by TMA -------------------------------------------------------------------
RF_FN void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
// The same to both blocks of a 2-CTA cluster (multicast), where each counts the bytes at its own mbarrier.
RF_FN void tma_load_multicast(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(uint16_t(3))
      : "memory");
}
// So many bytes that lie next to each other, a multiple of 16, as do both addresses.
RF_FN void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
// From shared memory; this thread's stores since the last bulk_commit are a group.
RF_FN void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
RF_FN void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all groups of this thread have read shared memory; until they are done.
RF_FN void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(0) : "memory"); }
RF_FN void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(0) : "memory"); }
RF_FN void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// What the asynchronous proxy (wgmma) reads after this was written before it.
RF_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- shared memory ---------------------------------------------------------------------------------
RF_FN float4 load_shared_v4(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from)
               : "memory");
  return v;
}

// --- registers -----------------------------------------------------------------------------------
template <int N> RF_FN void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> RF_FN void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// --- wgmma: matrix products of a warpgroup---------------------------------------------------------
// Both sides lie in shared memory along k; 1024 bytes from eight rows to the next eight. A tile is
// named by the low word of its matrix descriptor, its address in units of 16 bytes, which can be added to;
// the high word is the same for all.
template <int Bytes> constexpr int kDescriptorUnits = Bytes >> 4;
constexpr uint32_t kAddressMask = 0x3ffff;          // bits of a shared address
constexpr uint32_t kLeadingOffset = 1u << 16;       // of no meaning with this swizzle, whose rows are whole
constexpr uint32_t kStrideOffset = kDescriptorUnits<kSwizzleAlignment>;  // high word: from eight rows to the next
constexpr uint32_t kSwizzle128 = 1u << 30;          // high word: the 128-byte swizzle
RF_FN uint32_t descriptor_word(uint32_t address) { return kLeadingOffset | ((address & kAddressMask) >> 4); }
RF_FN uint64_t matrix_descriptor(uint32_t word) { return (uint64_t(kSwizzle128 | kStrideOffset) << 32) | word; }
RF_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RF_FN void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left> RF_FN void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// The registers of d as an instruction names and takes them, 64 at a time.
#define RF_ACCUMULATORS_20                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19"
#define RF_ACCUMULATORS_32                                                           \
  RF_ACCUMULATORS_20                                                                 \
  ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RF_ACCUMULATORS                                                              \
  RF_ACCUMULATORS_32                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RF_INOUT_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RF_INOUT_8(d, i) RF_INOUT_4(d, i), RF_INOUT_4(d, i + 4)
#define RF_INOUT(d)                                                                                          \
  RF_INOUT_8(d, 0), RF_INOUT_8(d, 8), RF_INOUT_8(d, 16), RF_INOUT_8(d, 24), RF_INOUT_8(d, 32), RF_INOUT_8(d, 40), \
      RF_INOUT_8(d, 48), RF_INOUT_8(d, 56)

// d[64 x 128] (+)= a[64 x 16] * b[128 x 16]^T; with add = false d is overwritten.
template <class T> RF_FN void wgmma(float (&d)[64], uint32_t a, uint32_t b, bool add);
#define RF_WGMMA(T, types)                                                                                        \
  template <> RF_FN void wgmma<T>(float (&d)[64], uint32_t a, uint32_t b, bool add) {                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" RF_ACCUMULATORS "}, %64, %65, "        \
                 "p, 1, 1, 0, 0;\n}"                                                                              \
                 : RF_INOUT(d)                                                                                    \
                 : "l"(matrix_descriptor(a)), "l"(matrix_descriptor(b)), "r"(int(add)));                          \
  }
RF_WGMMA(Half, "f16.f16")
RF_WGMMA(Bfloat, "bf16.bf16")
#undef RF_WGMMA

// The same of descriptors as they are, fp16.
RF_FN void wgmma_plain(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" RF_ACCUMULATORS
               "}, %64, %65, p, 1, 1, 0, 0;\n}"
               : RF_INOUT(d)
               : "l"(a), "l"(b), "r"(int(add)));
}

// d[64 x 64] (+)= a[64 x 16] * b[64 x 16]^T in the First-th 32 registers; or d[64 x 40] in the First-th 20, where they are
// multiples of these.
template <int First, int Sums> RF_FN void wgmma_plain_half(float (&d)[Sums], uint64_t a, uint64_t b, bool add) {
  if constexpr (Sums % 20 == 0)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %22, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16 {" RF_ACCUMULATORS_20
                 "}, %20, %21, p, 1, 1, 0, 0;\n}"
                 : RF_INOUT_8(d, 20 * First), RF_INOUT_8(d, 20 * First + 8), RF_INOUT_4(d, 20 * First + 16)
                 : "l"(a), "l"(b), "r"(int(add)));
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" RF_ACCUMULATORS_32
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : RF_INOUT_8(d, 32 * First), RF_INOUT_8(d, 32 * First + 8), RF_INOUT_8(d, 32 * First + 16),
                   RF_INOUT_8(d, 32 * First + 24)
                 : "l"(a), "l"(b), "r"(int(add)));
}

// wgmma_plain with a in registers ("RS"), fp16: lane l of warp w holds of rows 16 w + l / 4 and 8 more, k 2 (l % 4) and
// 1 more, and again 8 further.
RF_FN void wgmma_rs(float (&d)[64], const uint32_t (&a)[4], uint32_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" RF_ACCUMULATORS
               "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
               : RF_INOUT(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix_descriptor(b)), "r"(int(add)));
}
// The same of d[64 x 64].
#define RF_WGMMA_RS_HALF(name, flag)                                                                                \
  RF_FN void name(float (&d)[32], const uint32_t (&a)[4], uint32_t b, bool add) {                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" RF_ACCUMULATORS_32                          \
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, " flag ";\n}"                                              \
                 : RF_INOUT_8(d, 0), RF_INOUT_8(d, 8), RF_INOUT_8(d, 16), RF_INOUT_8(d, 24)                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix_descriptor(b)), "r"(int(add)));           \
  }
RF_WGMMA_RS_HALF(wgmma_rs_half, "0")
RF_WGMMA_RS_HALF(wgmma_rs_half_transposed, "1")  // b[16 x 64] in memory
#undef RF_WGMMA_RS_HALF
#undef RF_ACCUMULATORS
#undef RF_ACCUMULATORS_32
#undef RF_ACCUMULATORS_20
#undef RF_INOUT_8
#undef RF_INOUT_4
#undef RF_INOUT

}  // namespace rf

// Tile scheduler on Hopper: which tiles a block multiplies and over which steps of K, and how blocks that share a tile
// reduce its partial sums. The grid is persistent: a slot takes tile after tile.
//
// A slot is a block, or a 2-CTA cluster with tiles side by side, or the `kSplitK` blocks that share each tile.
//
//   kSplitK == 1   Stream-K (stream_k.cuh): whole tiles first, then the steps of the tiles left over, dealt out evenly.
//                  Whoever does a tile's last steps reduces the others' partial tiles, nearest first, and does the
//                  epilogue (store_partial, reduce_partials).
//   kSplitK > 1    few tiles, deep K: `kSplitK` blocks share each tile, each with its steps of K. All leave in the
//                  workspace what others will add and wait for each other; each of the first kEpilogueBlocks then
//                  reduces its share of the tile, first block to last, and does that fragment's epilogue
//                  (splitk_reduce).
//
// Workspace (zero-filled arrival counters, scratch of any content):
//   Stream-K   splitk_partials [block][16-byte piece of a fragment][thread], splitk_arrivals [block][warpgroup]
//   split-K    splitk_partials [slot][parity][block of the split][piece][thread], splitk_arrivals [slot][parity]
//              [arrived, left]; by parity of the iteration, since some read while others already write
//
// Memory order: partial sums are written past L1 (stcg); a named barrier orders them before thread 0, whose fence makes
// them visible to the device before it counts its arrival. Who waits reads the counter by ld.acquire.gpu, meets its
// warpgroup at a barrier, and then reads the partial sums past L1 (ldcg).
//
// Where blocks wait for each other the grid is launched cooperatively: all are resident, so waiting is safe.
// Floats are added in an order that depends on the sizes and the device alone.

namespace rf {

// So much of K may be added up without promotion, where operands are as they are and an element is a single
// product. What the tensor cores cut off grows with it, as cuBLAS's does: of non-negative data 4.8e-5 over 8192 and
// 1.9e-4 over 32768 (cuBLAS TF32: 5.5e-5, 2.2e-4). TF32's operands alone lack 2.9e-4 on randn.
constexpr long kMostUnpromotedDepth = 32768;

// Tiles: the two consumer warpgroups, one above the other or (Wide) side by side, hold half of one each.
struct Tall { static constexpr int kRows = 256, kCols = 128; };
struct Wide { static constexpr int kRows = 128, kCols = 256; };
struct Small { static constexpr int kRows = 128, kCols = 128; };

constexpr int kConsumerWarpgroups = 2, kConsumerThreads = kConsumerWarpgroups * kWarpgroupThreads;
constexpr int kConsumerBarrier = 3, kPingPongBarrier = 4;  // named barriers; 1 and 2 are the warpgroups' own

template <class M, class Tile = Tall, int SplitK = 1> struct Schedule {
  using Mode = M;
  static constexpr int kSplitK = SplitK;  // blocks that share the K of a tile
  // stages from promotion to promotion
  static constexpr int kPromote = kSplitK > 1 || Mode::kRS ? 1 : 2;
  static constexpr int kTileRows = Tile::kRows, kTileCols = Tile::kCols;
  static constexpr bool kStacked = kTileCols == 128;
  static constexpr int kHalves =
      kTileRows * kTileCols / (128 * 128);  // of a warpgroup, 64 x 128 each, one above the other
  static constexpr int kStages = kHalves == 2 ? 4 : 6, kRowBytes = kSwizzleRowBytes;
  static constexpr int kThreads = kConsumerThreads + kWarpgroupThreads;
  // of a thread, once a warpgroup knows its role: multiples of 8, as many as a processor has for all
  static constexpr int kProducerRegisters = Mode::kRS ? 24 : 40, kConsumerRegisters = Mode::kRS ? 240 : 232;
  static constexpr int kABytes = kTileRows * kRowBytes, kBBytes = kTileCols * kRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // Whether sums may stay where the tensor cores add them (Launch::promotes). Not where K is split: there cuBLAS
  // splits it, too, and cuts less off.
  static constexpr bool kMayBeUnpromoted = !Mode::kSplit && Mode::kTerms == 1 && kSplitK == 1;
  // Whether slots share the tiles left over.
  static constexpr bool kStreamK = kSplitK == 1 && !Mode::kRS;
  // The fragment of a warpgroup's epilogue: its halves, or its share of them when K is split.
  static constexpr int kEpilogueBlocks = kSplitK < 4 * kHalves ? kSplitK : 4 * kHalves;
  static constexpr int kMI = kSplitK == 1 ? kHalves : 1;
  static constexpr int kG = kSplitK == 1 ? 4 : 4 * kHalves / kEpilogueBlocks;
  static_assert(kStacked || !Mode::kRS, "warpgroups side by side would split the same rows of a twice");
  static_assert(kSplitK <= 32 && (kSplitK & (kSplitK - 1)) == 0);
};

struct Launch {
  Problem problem;
  int a_stages;            // stages that cover a row of a, which begins anew for each term of b (hi, lo)
  int tile_rows, tile_cols;  // tiles of C, from its row first_row on, which is a's first; two at a time if multicast
  int multicast;           // 1: 2-CTA clusters, tiles side by side, A is multicast; else 0
  int promotes;            // whether sums are promoted: Grid::uses_stream_k, is_unpromoted
  StreamK stream_k;        // what a slot does of them
  int first_row;
  float4* splitk_partials;
  unsigned* splitk_arrivals;  // zero between launches
};

// A block's place: its rank in a cluster, which steps of a split K, and which slot.
template <class S> struct TileScheduler {
  int rank, k_split, slot;
  RF_FN TileScheduler(int block, int multicast)
      : rank(block & multicast), k_split((block >> multicast) % S::kSplitK), slot((block >> multicast) / S::kSplitK) {}
  // Where the t-th tile, or two of a cluster, begins in C's grid of tiles.
  RF_FN void tile(const Launch& l, int t, int& row, int& col) const {
    tile_at(t, l.tile_rows, l.tile_cols, row, col);
    col = (col << l.multicast) + rank;
  }
  // What the block does in an iteration, tile t if that is its alone; false: nothing any more.
  RF_FN bool next(const Launch& l, int iteration, int t, WorkTile& w) const {
    if constexpr (S::kStreamK) return l.stream_k.next(slot, iteration, t, w);
    const long steps = l.stream_k.steps;
    w.begin = static_cast<int>(steps * k_split / S::kSplitK),
    w.end = static_cast<int>(steps * (k_split + 1) / S::kSplitK);
    w.tile = t, w.before = iteration * (w.end - w.begin);
    return t < l.stream_k.data_parallel_tiles;
  }
};

// The warpgroup's partial sums of a tile that another slot finishes go to the workspace.
template <class S>
RF_FN void store_partial(const Launch& l, const Fragment<S::kHalves, 4>& acc, int block, int barrier) {
  constexpr int kPieces = 16 * S::kHalves;
  float4* partials = l.splitk_partials + long(kPieces) * kConsumerThreads * block + threadIdx.x;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[q / 16][q % 16 * 4];
    __stcg(partials + q * kConsumerThreads, make_float4(x[0], x[1], x[2], x[3]));
  }
  named_barrier_sync(barrier, kWarpgroupThreads);
  if (threadIdx.x % kWarpgroupThreads == 0) {
    __threadfence();  // of what the barrier has made known to this thread, too
    atomicExch(l.splitk_arrivals + 2 * block + threadIdx.x / kWarpgroupThreads, 1u);
  }
}

// Adds what other blocks have left of the tile whose steps from `begin` on are this one's.
template <class S>
RF_FN void reduce_partials(const Launch& l, Fragment<S::kHalves, 4>& acc, const TileScheduler<S>& scheduler, int begin,
                           int barrier) {
  constexpr int kPieces = 16 * S::kHalves;
  const unsigned tile = l.stream_k.begin(scheduler.slot) - begin;  // where its steps begin
  int from = scheduler.slot;
  do {
    const int block = (--from << l.multicast) + scheduler.rank;
    if (threadIdx.x % kWarpgroupThreads == 0) {
      unsigned* iteration = l.splitk_arrivals + 2 * block + threadIdx.x / kWarpgroupThreads;
      unsigned here;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(iteration) : "memory");
      while (here == 0);
      *iteration = 0;
    }
    named_barrier_sync(barrier, kWarpgroupThreads);
    const float4* partials = l.splitk_partials + long(kPieces) * kConsumerThreads * block + threadIdx.x;
#pragma unroll
    for (int q = 0; q < kPieces; q++) {
      const float4 more = __ldcg(partials + q * kConsumerThreads);
      float* x = &acc.x[q / 16][q % 16 * 4];
      x[0] += more.x, x[1] += more.y, x[2] += more.z, x[3] += more.w;
    }
  } while (l.stream_k.begin(from) > tile);
}

// The warpgroup's partial sums go to the workspace, but for its block's share, which meets the others' there. False:
// the block has no share.
template <class S>
RF_FN bool splitk_reduce(const Launch& l, const Fragment<S::kHalves, 4>& acc, Fragment<S::kMI, S::kG>& share,
                     int slot, int parity, int k_split) {
  constexpr int kPieces = 16 * S::kHalves, kMine = kPieces / S::kEpilogueBlocks;
  const int thread = threadIdx.x;  // of 256
  unsigned* arrivals = l.splitk_arrivals + 2 * (2 * slot + parity);
  float4* partials = l.splitk_partials + (2L * slot + parity) * S::kSplitK * kPieces * kConsumerThreads;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[q / 16][q % 16 * 4];
    if (q / kMine != k_split)
      __stcg(partials + (k_split * kPieces + q) * kConsumerThreads + thread, make_float4(x[0], x[1], x[2], x[3]));
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);
  if (thread == 0) {
    __threadfence();  // of what the barrier has made known to this thread, too
    atomicAdd(arrivals, 1u);
    unsigned here;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(arrivals) : "memory");
    while (here < S::kSplitK);
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);
  const bool finishes = S::kEpilogueBlocks == S::kSplitK || k_split < S::kEpilogueBlocks;
  if (finishes) {
#pragma unroll
    for (int q = 0; q < kMine; q++) {
      float4 sum;
#pragma unroll
      for (int from = 0; from < S::kSplitK; from++) {
        float4 x;
        if (from < S::kEpilogueBlocks && from == k_split) {
          const int own = from * kMine + q;
          const float* held = &acc.x[own / 16][own % 16 * 4];
          x = make_float4(held[0], held[1], held[2], held[3]);
        } else {
          x = __ldcg(partials + (from * kPieces + k_split * kMine + q) * kConsumerThreads + thread);
        }
        if (from == 0) sum = x;
        else sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
      float* x = &share.x[0][4 * q];
      x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
    }
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);  // all of this block has read
  if (thread == 0 && atomicInc(arrivals + 1, S::kSplitK - 1) == S::kSplitK - 1) atomicExch(arrivals, 0u);
  return finishes;
}

}  // namespace rf

// Mainloop on Hopper: the wgmmas of a consumer warpgroup over a tile's steps of K, both operands from shared memory.
//
// Three mainloops (matmul_sm90.cuh says which warps run them, and shows a timeline):
//   mainloop_promoted     kPromote stages, 64 of k, go to a short accumulator, `partial`; fp32 additions then add it to
//                         the tile's. Small products first: lo*hi, hi*lo, hi*hi.
//   mainloop_unpromoted   the tensor cores keep the tile's accumulator; the wgmmas of one stage are always in flight
//   mainloop_rs           A from registers (mainloop_rs_sm90.cuh)
//
// Registers of a thread: 64 of `partial` and 64 a half (64 rows) of the accumulator. The halves share `partial`, one
// after the other. Shared memory: a stage's row of 128 bytes is 32 of k, 64 bytes of hi and 64 of lo; or 64 of k as
// they are.

namespace rf {

// Distances inside a stage's row, in units of descriptors.
constexpr int kSlice = kDescriptorUnits<16 * 2>;  // from one instruction's 16 of k to the next one's
constexpr int kLo = kDescriptorUnits<64>;         // from hi to lo of a row that holds both
constexpr int kSlices = 4;                        // of a row, where elements are single

// The mbarriers of the pipeline. A warp releases a stage by lane 0 at its block's own and, in a cluster of two, by lane
// `remote_lane` at the other block's.
struct Pipeline {
  uint32_t full, empty, remote_empty;
  int remote_lane;
  RF_FN void release(int stage) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + kMbarrierBytes * stage);
    if (threadIdx.x % 32 == remote_lane) mbarrier_arrive_cluster(remote_empty + kMbarrierBytes * stage);
  }
};

// The wgmmas of one promotion step (`kPromote` stages from `stage`) on rows 64 mi to 64 mi + 63 of the warpgroup, then
// their promotion. a, b: descriptors of the warpgroup's rows in the first stage.
template <class S>
RF_FN void promotion_step(float (&accumulator)[64], float (&partial)[64], uint32_t a, uint32_t b, int stage, int mi,
                          uint32_t full, uint32_t phase) {
  using T = typename S::Mode::Type;
  constexpr int kNext = kDescriptorUnits<S::kStageBytes>, kHalf = kDescriptorUnits<64 * S::kRowBytes>;
  if (mi == 0)
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) mbarrier_wait(full + kMbarrierBytes * (stage + p), phase);
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < S::kPromote; p++) {
    const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
    if constexpr (S::Mode::kSplit) {
      wgmma<T>(partial, at + kLo, bt, p != 0);
      wgmma<T>(partial, at + kLo + kSlice, bt + kSlice, true);
      wgmma<T>(partial, at, bt + kLo, true);
      wgmma<T>(partial, at + kSlice, bt + kLo + kSlice, true);
    } else {
#pragma unroll
      for (int k = 0; k < kSlices; k++) wgmma<T>(partial, at + kSlice * k, bt + kSlice * k, p + k != 0);
    }
  }
  if constexpr (S::Mode::kSplit) {
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) {
      const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
      wgmma<T>(partial, at, bt, true);
      wgmma<T>(partial, at + kSlice, bt + kSlice, true);
    }
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64; i++) {
    asm volatile("" : "+f"(partial[i])::"memory");  // not read before the wait
    accumulator[i] += partial[i];
  }
}

// `steps` promotion steps from `first` on: acc becomes their sum.
template <class S>
RF_FN void mainloop_promoted(Fragment<S::kHalves, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int first,
                             int steps, const Pipeline& pipeline) {
#pragma unroll
  for (int i = 0; i < 64; i++) {  // an epilogue may have their registers
    partial[i] = 0.0f;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) acc.x[mi][i] = 0.0f;
  }
#pragma unroll 1
  for (int k = first; k < first + steps; k++) {
    constexpr int kStepsPerPhase = S::kStages / S::kPromote;
    const int stage = k % kStepsPerPhase * S::kPromote, phase = k / kStepsPerPhase & 1;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++)
      promotion_step<S>(acc.x[mi], partial, a, b, stage, mi, pipeline.full, phase);
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) pipeline.release(stage + p);
  }
}

// Issues the wgmmas of a stage, one for each element; the first ones overwrite the accumulator.
template <class S, bool IsFirst>
RF_FN void wgmma_stage(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int stage) {
  using T = typename S::Mode::Type;
  constexpr int kNext = kDescriptorUnits<S::kStageBytes>, kHalf = kDescriptorUnits<64 * S::kRowBytes>;
  const uint32_t at = a + stage * kNext, bt = b + stage * kNext;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSlices * S::kHalves; i++)
    wgmma<T>(acc.x[i / kSlices], at + i / kSlices * kHalf + kSlice * (i % kSlices), bt + kSlice * (i % kSlices),
             !IsFirst || i % kSlices != 0);
  wgmma_commit_group();
}

// The same steps, one or more, each element a single product, without promotion.
template <class S>
RF_FN void mainloop_unpromoted(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int first, int steps,
                               const Pipeline& pipeline) {
  const int end = (first + steps) * S::kPromote;
  int k = first * S::kPromote;
  mbarrier_wait(pipeline.full + kMbarrierBytes * (k % S::kStages), k / S::kStages & 1);
  wgmma_stage<S, true>(acc, a, b, k % S::kStages);
#pragma unroll 1
  for (k++; k < end; k++) {
    const int stage = k % S::kStages;
    mbarrier_wait(pipeline.full + kMbarrierBytes * stage, k / S::kStages & 1);
    wgmma_stage<S, false>(acc, a, b, stage);
    wgmma_wait_group<1>();
    pipeline.release((k - 1) % S::kStages);
  }
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64 * S::kHalves; i++)
    asm volatile("" : "+f"(acc.x[i / 64][i % 64])::"memory");  // not read before the wait
  pipeline.release((end - 1) % S::kStages);
}

// Defined in mainloop_rs_sm90.cuh, which only IeeeRS needs.
template <class S>
RF_FN void mainloop_rs(Fragment<2, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int warpgroup, int first,
                       int count, uint32_t full, uint32_t empty);

}  // namespace rf

// Matmul on Hopper: C[row, col] = body.value(sum over k of A[row, k] * B[col, k]), to fp32's accuracy on fp16 tensor
// cores. A persistent, warp-specialized kernel: one thread issues TMA loads, two consumer warpgroups issue wgmma and do
// the epilogue of the tile that they hold in registers.
//
// Why: fp32 products run on CUDA cores at 51 TFLOP/s; fp16 ones on tensor cores at 790. An fp32 value is the sum of two
// scaled fp16 values to 22 bits (hi_lo_split.cuh), and three fp16 products of four,
//   lo*hi + hi*lo + hi*hi,
// carry fp32's accuracy if the accumulator does. Hopper's does not: it truncates toward zero, which over K = 8192 costs
// 6 times cuBLAS's error. So a short accumulator takes 64 of K only, small products first, and is then added
// ("promoted") to a second one by plain fp32 additions. Where an element is a single product (Tf32, 16 bits) and tiles
// are so many that cuBLAS keeps K whole, it cuts off as much: the tensor cores keep the accumulator, for up to
// kMostUnpromotedDepth of K, and the next stage's wgmmas are always in flight.
//
// Roles of the 384 threads of a block:
//   threads    role                                          setmaxnreg   registers hold
//   0-127      consumer warpgroup 0: wgmma, epilogue         232 (RS 240) 128 accumulators, 64 of the short one
//   128-255    consumer warpgroup 1: the other half's        232 (RS 240) the same (small tiles: 64 and 64)
//   256        producer: issues every TMA load               40 (RS 24)
//   288-383    look at the parameters once (look.cuh)        40 (RS 24)
// ptxas gives 168 at entry: 384 * 168 = 64512 of 65536 registers; setmaxnreg deals them out anew, 128 * 40 + 256 * 232.
//
// Shared memory of a block (dynamic; bytes):
//   stages     196608   4 stages of 48 KB (256 x 128 and 128 x 256 tiles) or 6 of 32 KB (128 x 128): rows of A, then of
//                       B, each 128 bytes in TMA's 128-byte swizzle: 32 of k, hi beside lo (Ieee, IeeeRS: B alone,
//                       A is 32 of k in fp32); 64 of k (Tf32, 16 bits)
//   full       8 each   mbarrier of a stage: the producer's arrival, and its bytes by TMA
//   empty      8 each   mbarrier of a stage: one arrival of each consumer warp (of both blocks of a cluster)
//   epilogue   2 x      a warpgroup's (EpilogueStorage, by the body's reductions)
//   alignment  1024     the swizzle repeats every 1024 bytes
//
// Named barriers: 1 and 2, a warpgroup's own in its epilogue; 3, both, when K is split; 4 and 5, ping-pong (IeeeRS).
//
// Timeline, 4 stages, 2 to a promotion step; a warpgroup's halves of 64 rows alternate in the short accumulator:
//   producer     load 0 1 2 3 | wait empty 0 1, load them again | 2 3 | ...
//   warpgroup 0  wait full 0 1 | wgmma half 0 | promote | wgmma half 1 | promote, release 0 1 | full 2 3 | wgmma ...
//   warpgroup 1     wait full 0 1 | wgmma half 0 | promote | wgmma half 1 | promote, release 0 1 | ...
// While one warpgroup promotes, the other's wgmmas keep the tensor cores busy.
//
// Tiles: a tile of C is 256 x 128 (Tall) or 128 x 256 (Wide); a warpgroup holds 128 x 128 of it. Where C is small,
// tiles of 128 x 128 keep more processors busy. Blocks stay and take tile after tile (TileScheduler), 8 tiles of rows
// to a band, so that 132 blocks at a time read about 8 x 17 tiles and L2 serves the rest.
//
// Clusters: where there are tiles enough, two blocks side by side (a 2-CTA cluster) need the same rows of A. Each loads
// half of them and multicasts it to both, a third less for L2 to give. A stage is then empty when the consumers of both
// blocks have released it.
//
// Where tiles do not come out even, or are few and K is deep: Stream-K and split-K, tile_scheduler_sm90.cuh.

namespace rf {

template <class S, class Body> struct alignas(kSwizzleAlignment) SharedStorage {
  unsigned char stages[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
  EpilogueStorage<Body, S::kG> epilogue[kConsumerWarpgroups];
};

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    matmul_sm90(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                const __grid_constant__ Launch launch, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  using Shared = SharedStorage<S, Body>;
  auto& shared = *reinterpret_cast<Shared*>(raw_shared + (-shared_address(raw_shared) & (kSwizzleAlignment - 1)));
  // Exchanged, so that the compiler computes it once, and not in every step.
  const uint32_t stage_base = __shfl_sync(kFullMask, shared_address(shared.stages), 0);
  const uint32_t full = stage_base + offsetof(Shared, full), empty = stage_base + offsetof(Shared, empty);
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumerThreads / 32;
    for (int s = 0; s < S::kStages; s++) {
      mbarrier_init(full + kMbarrierBytes * s, 1);
      mbarrier_init(empty + kMbarrierBytes * s, kConsumerWarps << launch.multicast);
    }
    fence_mbarrier_init();
    prefetch_tensormap(&a_map);
    prefetch_tensormap(&b_map);
  }
  cluster_sync();
  wait_on_dependent_grids();

  const int multicast = S::Mode::kRS ? 0 : launch.multicast;
  const int slots = (gridDim.x >> multicast) / S::kSplitK;

  // --- producer --------------------------------------------------------------------------------
  if (threadIdx.x >= kConsumerThreads) {
    constexpr int kProducer = kConsumerThreads, kFirstIdle = kProducer + 32;
    setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x == kProducer) {
      // The producer: loads the stages of all of the block's tiles, each once it is empty.
      constexpr int kDepth = kSwizzleRowBytes / 2, kRSDepth = kSwizzleRowBytes / 4;  // of k in a row: 16 bits; fp32
      int stage = 0;
      uint32_t phase = 1;  // all stages are empty at first
      const TileScheduler<S> scheduler(blockIdx.x, multicast);
      WorkTile now;
      for (int iteration = 0, t = scheduler.slot; scheduler.next(launch, iteration, t, now); iteration++, t += slots) {
        int tile_row, tile_col;
        scheduler.tile(launch, now.tile, tile_row, tile_col);
        int a_row = tile_row * S::kTileRows, b_row = tile_col * S::kTileCols;
        if constexpr (Body::kBatched) {
          const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
          a_row = problem.first_row, b_row = problem.b_row(b_row);
        }
        for (int k = now.begin * S::kPromote; k < now.end * S::kPromote; k++) {
          mbarrier_wait(empty + kMbarrierBytes * stage, phase);
          mbarrier_arrive_expect_tx(full + kMbarrierBytes * stage, S::kStageBytes);
          const uint32_t to = stage_base + stage * S::kStageBytes;
          const int a_k = S::Mode::kTerms == 1 ? k : k % launch.a_stages;
          if (multicast)
            tma_load_multicast(to + scheduler.rank * (S::kABytes / 2), &a_map, a_k * kDepth,
                               a_row + scheduler.rank * (S::kTileRows / 2), full + kMbarrierBytes * stage);
          else
            tma_load(to, &a_map, a_k * (S::Mode::kRS ? kRSDepth : kDepth), a_row, full + kMbarrierBytes * stage);
          tma_load(to + S::kABytes, &b_map, k * kDepth, b_row, full + kMbarrierBytes * stage);
          if (++stage == S::kStages) stage = 0, phase ^= 1;
        }
      }
      launch_dependent_grids();
    } else if (threadIdx.x >= kFirstIdle && blockIdx.x == 0) {  // warps that have nothing else to do
      look_at_words(look_of(body, 0), threadIdx.x - kFirstIdle, S::kThreads - kFirstIdle);
    }
    // --- consumers -------------------------------------------------------------------------------
  } else {
    setmaxnreg_inc<S::kConsumerRegisters>();
    const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0);  // known to be uniform
    const int barrier = 1 + warpgroup;
    const int down = S::kStacked ? 64 * S::kHalves * warpgroup : 0, right = S::kStacked ? 0 : 128 * warpgroup;
    const uint32_t a = descriptor_word(stage_base + down * S::kRowBytes);
    const uint32_t b = descriptor_word(stage_base + S::kABytes + right * S::kRowBytes);
    constexpr int kNoLane = 32;
    const uint32_t remote_empty = map_shared_rank(empty, (blockIdx.x & multicast) ^ multicast);
    const Pipeline pipeline{full, empty, remote_empty, multicast ? 0 : kNoLane};
    float partial[64];
#pragma unroll
    for (int i = 0; i < 64; i++) partial[i] = 0.0f;
    WorkTile now;
    for (int iteration = 0;; iteration++) {
      const TileScheduler<S> here(read_ctaid_x(), multicast);
      if (!here.next(launch, iteration, here.slot + iteration * slots, now)) break;
      // The same in all lanes, which is made known to the compiler once more: behind an epilogue's
      // branches it would keep the stage in each lane's registers and move every descriptor to uniform
      // ones by itself, four moves a product.
      const int first = __shfl_sync(kFullMask, now.before, 0);
      const int count = now.end - now.begin, steps = S::Mode::kRS ? count : __shfl_sync(kFullMask, count, 0);
      Fragment<S::kHalves, 4> acc;
      if constexpr (S::Mode::kRS) {
#pragma unroll
        for (int i = 0; i < 64; i++) acc.x[0][i] = acc.x[1][i] = 0.0f;
        mainloop_rs<S>(acc, partial, stage_base + down * S::kRowBytes, b, warpgroup, first, steps, full, empty);
      } else if (!S::kMayBeUnpromoted || launch.promotes) {
        mainloop_promoted<S>(acc, partial, a, b, first, steps, pipeline);
      } else if constexpr (S::kMayBeUnpromoted) {
        mainloop_unpromoted<S>(acc, a, b, first, steps, pipeline);
      }
      constexpr bool kBScaled = S::Mode::kScaled, kAScaled = kBScaled && !S::Mode::kRS;
      auto& mine = shared.epilogue[warpgroup];
      const TileScheduler<S> scheduler(read_ctaid_x(), multicast);
      // once more, for there is no register to keep it in
      scheduler.next(launch, iteration, scheduler.slot + iteration * slots, now);
      if constexpr (S::kStreamK) {
        if (now.end < launch.stream_k.steps) {
          store_partial<S>(launch, acc, read_ctaid_x(), barrier);
          continue;
        }
        if (now.begin > 0) reduce_partials<S>(launch, acc, scheduler, now.begin, barrier);
      }
      int tile_row, tile_col;
      scheduler.tile(launch, now.tile, tile_row, tile_col);
      int row0 = launch.first_row + tile_row * S::kTileRows + down;
      int col0 = tile_col * S::kTileCols + right;
      const auto finalize = [&](auto& fragment) {
        if constexpr (Body::kBatched) {
          const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
          row0 += problem.first_row - tile_row * S::kTileRows;
          epilogue<kAScaled, kBScaled>(body, problem, fragment, row0, col0, mine, barrier);
        } else {
          epilogue<kAScaled, kBScaled>(body, launch.problem, fragment, row0, col0, mine, barrier);
          arrive_and_finalize_rows<S::kMI>(body, launch.problem, row0, col0, mine, barrier);
        }
      };
      if constexpr (S::kSplitK == 1) {
        finalize(acc);
      } else {
        Fragment<S::kMI, S::kG> share;
        const int tile_slot = (scheduler.slot << multicast) + scheduler.rank;
        if (!splitk_reduce<S>(launch, acc, share, tile_slot, iteration % 2, scheduler.k_split)) continue;
        constexpr int kAcross = 4 / S::kG;  // shares side by side
        row0 += 64 * (scheduler.k_split / kAcross);
        col0 += 32 * S::kG * (scheduler.k_split % kAcross);
        finalize(share);
      }
    }
  }
  if (multicast) cluster_sync();  // neither may end while the other copies to it or arrives at its barriers
}

}  // namespace rf

// Launch: the host side of the product on Hopper, rf::matmul<Schedule<Mode, tile, split-K>>.
//
// An unsplit `a` of many rows is split and multiplied some rows at a time, over and over in the same memory: no
// batch is so large that its copy does not fit. Partials of columns are numbered over all rows and merged at the
// end. As few rows as the L2 holds are no faster (docs/kernels.md).

namespace rf {

#ifndef __CUDACC_RTC__
// The tensor map of an operand for TMA: boxes of 128 bytes (swizzled) by `box` rows.
inline Error tile_map(CUtensorMap& map, const Operand& side, long elements, int box, CUtensorMapDataType type) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static std::atomic<void*> known{nullptr};
  void* encode = known.load(std::memory_order_acquire);
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult result;
    RF_TRY(
        checked(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &result),
                "looking for cuTensorMapEncodeTiled in the driver"));
    if (result != cudaDriverEntryPointSuccess || encode == nullptr)
      return error("the driver has no cuTensorMapEncodeTiled: it must be one for CUDA 12.0 or later");
    known.store(encode, std::memory_order_release);
  }
  const cuuint64_t sizes[2] = {cuuint64_t(elements), cuuint64_t(side.rows)}, stride = cuuint64_t(side.pitch) * 2;
  const cuuint32_t boxes[2] = {type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 32u : 64u, cuuint32_t(box)}, ones[2] = {1, 1};
  const CUresult status = reinterpret_cast<Encode>(encode)(
      &map, type, 2, const_cast<void*>(side.data), sizes, &stride, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    return error("describing an operand [%ld, %ld] at %p to TMA failed (CUresult %d): it must be aligned "
                 "by 16 bytes, rows a multiple of 16 bytes apart", side.rows, elements, side.data, int(status));
  return nullptr;
}
#endif

template <class T> constexpr CUtensorMapDataType element_type() { return CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
template <> constexpr CUtensorMapDataType element_type<Bfloat>() { return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }

template <class M, class Tile, int SplitK, class Body> struct Product<Schedule<M, Tile, SplitK>, Body> {
  using S = Schedule<M, Tile, SplitK>;

  // Fragments, tiles, whether blocks form 2-CTA clusters (tile_cols is even then, the last may be empty), and how many
  // tiles (of kSplitK blocks each) are worked on at a time.
  struct Grid : Partition<Body> {
    long tile_rows, tile_cols, fit;
    int multicast = 0;
    Grid(long rows, long cols, long batches, const Device& device)
        : Partition<Body>(rows, cols, 64 * S::kMI, 32 * S::kG),
          tile_rows(batches * blocks_of(rows / batches, S::kTileRows)),
          tile_cols(blocks_of(cols, S::kTileCols)),
          fit(device.processors / S::kSplitK) {
      if (M::kRS) return;
      Grid clusters = *this;
      clusters.tile_cols += tile_cols % 2, clusters.fit -= fit % 2, clusters.multicast = 1;
      const bool empty = tile_cols % 2 == 1;
      if (clusters.fit > 0 && !(empty && tile_cols < 9) && clusters.waves(tile_rows) <= waves(tile_rows))
        *this = clusters;
    }

    long waves(long high) const { return blocks_of(high * tile_cols, fit); }
    // along: K as the warpgroups go along it.
    static long steps(long along) { return blocks_of(along, S::kPromote * M::kStageDepth); }
    // A shared tile's sums are cut where others' are not. Equal rows must stay equal, for batch norm magnifies what
    // they differ by: so where tiles are shared all sums are promoted, which is dear, in all calls alike.
    bool uses_stream_k(long high, long along) const {
      const bool dear = is_unpromoted(along);
      return S::kStreamK && (high == tile_rows || !dear) && StreamK::pays(high * tile_cols, fit, steps(along), dear);
    }
    // Whether sums are not promoted but where tiles are shared. Of fewer tiles cuBLAS splits K, and cuts less off; of
    // as many small ones it does where K is deep.
    bool is_unpromoted(long along) const {
      const long tiles = tile_rows * tile_cols;
      const long most = 2 * S::kHalves * tiles >= 3 * fit ? kMostUnpromotedDepth : kMostUnpromotedDepth / 4;
      return S::kMayBeUnpromoted && 4 * tiles >= 3 * fit && along <= most;
    }
    // Tiles that are worked on at a time.
    long slots(long high, long along) const {
      const long tiles = high * tile_cols;
      return tiles < fit && !uses_stream_k(high, along) ? tiles : fit;
    }

    // Rows of tiles at a time: a quarter of all, but copies of 64 to 256 MB, if that takes hardly more waves than all
    // at once. Each time costs about 17 us (H200): with 64 MB at a time large products were 2 to 3.6% slower.
    long tiles_at_a_time(long depth) const {
      constexpr long kLittle = 64 << 20, kMuch = 256 << 20;  // bytes
      const long quarter = split_bytes<M>(this->rows, depth) / 4;
      const long kept = quarter < kLittle ? kLittle : quarter < kMuch ? quarter : kMuch;
      const long most = kept / (split_bytes<M>(1, depth) * S::kTileRows);
      for (long high = most; high < tile_rows && 2 * high > most; high--)
        if (50 * (tile_rows / high * waves(high) + waves(tile_rows % high)) <= 51 * waves(tile_rows)) return high;
      return tile_rows;
    }

    // Where in the workspace's scratch each thing begins: partial tiles, split rows of a, and the end.
    static constexpr size_t kTileBytes = S::kTileRows * S::kTileCols * sizeof(float);
    size_t tile_partials() const { return this->bytes(); }
    size_t split_begin() const {
      if (S::kSplitK > 1) return tile_partials() + slots(tile_rows, 0) * 2 * S::kSplitK * kTileBytes;
      const bool may_stream_k = S::kStreamK && 4 * tile_rows * tile_cols >= fit;  // fewer tiles never do
      return tile_partials() + (may_stream_k ? fit * kTileBytes : 0);
    }
    long rows_at_a_time(long depth) const {
      if (Body::kBatched) return this->rows;  // tiles do not reach across products
      const long most = tiles_at_a_time(depth) * S::kTileRows;
      return most < this->rows ? most : this->rows;
    }
    size_t end(long depth) const {
      const long rows = depth && !M::kRS ? rows_at_a_time(depth) : 0;
      return split_begin() + aligned_bytes(split_bytes<M>(rows, depth)) + rows * sizeof(float);
    }
  };

  static Error bytes(long rows, long cols, long unsplit_depth, size_t& scratch, size_t& arrivals, long batches) {
    Device device;
    RF_TRY(current_device(device));
    const Grid grid(rows, cols, batches, device);
    scratch = grid.end(unsplit_depth);
    arrivals =
        (grid.arrivals() + (S::kSplitK > 1 ? 4 * grid.slots(grid.tile_rows, 0) : 2 * grid.fit)) * sizeof(unsigned);
    return nullptr;
  }

  static Error run(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    Device device;
    RF_TRY(current_device(device));
    if (device.major != 9)
      return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
    const Grid grid(a.rows, b.rows / b.batches, b.batches, device);
    if (workspace.scratch == nullptr && grid.end(a.data == nullptr ? depth : 0) > 0)
      return error("a product of %ld x %ld has no memory to work in", a.rows, b.rows);
    if constexpr (M::kRS) {
      RF_TRY(multiply(body, grid, 0, rs_operand(a.plain, a.rows, a.ld), b, depth, device, workspace, stream));
      return finalize(body, grid, a, b, depth, workspace, stream);
    } else if constexpr (M::kScaled) {
      if (a.data == nullptr) {
        char* data = static_cast<char*>(workspace.scratch) + grid.split_begin();
        const long most = grid.rows_at_a_time(depth);
        auto* unscale = reinterpret_cast<float*>(data + aligned_bytes(split_bytes<M>(most, depth)));
        for (long first = 0; first < a.rows; first += most) {
          const float* plain = a.plain + first * a.ld;
          const Operand some =
              split_operand<M>(data, unscale, plain, a.rows - first < most ? a.rows - first : most, depth, a.ld);
          RF_TRY(hi_lo_split<M>(plain, some.rows, depth, a.ld, data, unscale, stream));
          RF_TRY(multiply(body, grid, first, some, b, depth, device, workspace, stream));
        }
        return finalize(body, grid, a, b, depth, workspace, stream);
      }
    }
    RF_TRY(multiply(body, grid, 0, a, b, depth, device, workspace, stream));
    return finalize(body, grid, a, b, depth, workspace, stream);
  }

 private:
  // The rows of the result from `first` on, which is a multiple of a tile's, as many as a has.
  static Error multiply(const Body& body, const Grid& grid, long first, const Operand& a, const Operand& b, long depth,
                        const Device& device, const Workspace& workspace, cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    constexpr auto type = element_type<typename M::Type>();
    constexpr auto a_type = M::kRS ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : type;
    RF_TRY(tile_map(a_map, a, M::kRS ? depth : a_elements<M>(depth), S::kTileRows >> grid.multicast, a_type));
    RF_TRY(tile_map(b_map, b, b_elements<M>(depth), S::kTileCols, type));

    Launch l{};
    Operand all = a;  // as if it began at the result's first row
    all.plain -= first * a.ld;
    if (all.unscale != nullptr) all.unscale -= first;
    l.problem = grid.problem(all, b, depth, workspace);
    l.first_row = static_cast<int>(first);
    l.splitk_partials = reinterpret_cast<float4*>(static_cast<char*>(workspace.scratch) + grid.tile_partials());
    l.splitk_arrivals = workspace.arrivals + grid.arrivals();
    const long along = M::kTerms == 1 ? depth : b_elements<M>(depth);
    l.a_stages = static_cast<int>(blocks_of(depth, M::kStageDepth));
    const long high = Body::kBatched ? grid.tile_rows : blocks_of(a.rows, S::kTileRows);
    l.problem.batch_tiles = static_cast<int>(grid.tile_rows / b.batches);
    l.tile_rows = static_cast<int>(high), l.tile_cols = static_cast<int>(grid.tile_cols >> grid.multicast);
    l.multicast = grid.multicast;
    const long slots = grid.slots(high, along);
    const bool uses_stream_k = grid.uses_stream_k(high, along);
    l.promotes = uses_stream_k || !grid.is_unpromoted(along);
    l.stream_k =
        StreamK(high * grid.tile_cols >> grid.multicast, slots >> grid.multicast, grid.steps(along), uses_stream_k);

    static std::atomic<uint64_t> allowed{0};
    constexpr size_t shared = sizeof(SharedStorage<S, Body>) + kSwizzleAlignment;  // its start is aligned by hand
    constexpr size_t kMostShared = 227 << 10;
    static_assert(shared <= kMostShared, "more shared memory than a block can have");
    auto* kernel = matmul_sm90<S, Body>;
    RF_TRY(allow_shared(kernel, shared, device, allowed));
    const LaunchMode start =
        S::kSplitK > 1 || uses_stream_k ? LaunchMode::cooperative : LaunchMode::overlapping;  // blocks may wait
    return launch(kernel, {static_cast<unsigned>(slots * S::kSplitK), 1u << grid.multicast}, S::kThreads, shared,
                  stream, start, "launching the product", a_map, b_map, l, body);
  }

  static Error finalize(const Body& body, const Grid& grid, const Operand& a, const Operand& b, long depth,
                      const Workspace& workspace, cudaStream_t stream) {
    return grid.finalize(body, grid.problem(a, b, depth, workspace), stream);
  }
};

}  // namespace rf

// Matmul in plain fp32 arithmetic, by CUDA cores: for what is tiny or odd, and for weights that are read once.
//
// Why: splitting and the tensor cores' tiles of 128 pay only where they are filled. With a batch of 1 to 16 a product
// is one reading of the weights and nothing else may cost more than that; with K < 32 or a handful of rows and columns
// it is a launch. Operands are rows of fp32 or 16 bits as they are, at any address.
//
//   kernel          threads, and what they hold            registers    shared memory
//   matmul_tiled    128: one warpgroup, 128 x 64 of C in   224 to 254   12.5 KB: 16 of k of both operands, [k][row],
//                   the epilogue's layout                               and the epilogue's
//   matmul_skinny   256: eight warps, eight rows of the    128 (R 4),   R KB / 4: the sums of each warp's k, and the
//                   long operand each, against R of the    to 255       epilogue's
//                   short one
//
// Skinny GEMM: one operand (the short one) has at most R rows. Every lane takes four of k at a time of the long one,
// read once, past L1; the short one is read from L1. Lanes' sums are added by halving, as columns are in the epilogue,
// and warps that split K first to last: always in one order.
//
// Sums are fp32, cut into runs of 64 of k that are added to longer ones (Tiled), or into 32 or 64 that the lanes hold
// (Skinny): their rounding does not grow with K as one chain's would.
#include <type_traits>


namespace rf {

// A, B: elements of the operands.
template <class A = float, class B = float> struct PlainOf {
  using Mode = void;  // operands are not split
};
using Plain = PlainOf<>;

struct Tiled {
  static constexpr int kMI = 2, kG = 2, kThreads = 128;
  static constexpr int kTileRows = 64 * kMI, kTileCols = 32 * kG;
  static constexpr int kChunk = 16, kPromoteChunks = 4;  // of k; chunks from promotion to promotion
};

// R: at most so many rows of the short operand, which is a; or b if kAcross.
template <int R, bool IsAcross> struct Skinny {
  static constexpr int kRows = R;
  static constexpr bool kAcross = IsAcross;
  static constexpr int kMI = 1, kG = 1, kThreads = 256, kWarpRows = 8;
  static constexpr int kRowWarps = kAcross ? 8 : 4;     // warps that take different rows of the long operand
  static constexpr int kSplitK = 8 / kRowWarps;         // warps that share rows, each with its steps of K
  static constexpr int kLong = kRowWarps * kWarpRows;  // rows of the long operand of a block: of its fragment
  static constexpr int kTileRows = 64, kTileCols = 32;
  static_assert(kLong == (kAcross ? kTileRows : kTileCols) && R <= 32, "a block fills one fragment");
};

// One chunk of `Rows` rows of an operand: each thread's values of it, then to shared memory as [k][row].
template <int Rows> struct Chunk {
  static constexpr int kStride = Rows + 2, kEach = Rows * Tiled::kChunk / Tiled::kThreads;
  float value[kEach];
  template <class T> RF_FN void load(const T* side, long ld, long row0, long rows, long k0, long depth) {
    const long k = k0 + threadIdx.x % Tiled::kChunk;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const long row = row0 + threadIdx.x / Tiled::kChunk + i * (Tiled::kThreads / Tiled::kChunk);
      value[i] = k < depth && row < rows ? read_one(side + row * ld + k) : 0.0f;
    }
  }
  RF_FN void store(float* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      shared[threadIdx.x % Tiled::kChunk * kStride + threadIdx.x / Tiled::kChunk +
             i * (Tiled::kThreads / Tiled::kChunk)] = value[i];
  }
};

template <class ElementA, class ElementB, class Body>
__global__ void __launch_bounds__(Tiled::kThreads)
    matmul_tiled(const __grid_constant__ Problem p, const __grid_constant__ Body body) {
  constexpr int kMI = Tiled::kMI, kG = Tiled::kG, kRows = 2 * kMI;
  using A = Chunk<Tiled::kTileRows>;
  using B = Chunk<Tiled::kTileCols>;
  __shared__ __align__(16) float a_chunk[Tiled::kChunk * A::kStride], b_chunk[Tiled::kChunk * B::kStride];
  __shared__ EpilogueStorage<Body, kG> storage;
  const long tile_cols = (p.cols + Tiled::kTileCols - 1) / Tiled::kTileCols;
  const long row0 = blockIdx.x / tile_cols * Tiled::kTileRows, col0 = blockIdx.x % tile_cols * Tiled::kTileCols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  wait_on_dependent_grids();
  look_in_first_block(body);

  Fragment<kMI, kG> acc, partial;
#pragma unroll
  for (int i = 0; i < kMI * 16 * kG; i++) acc.x[0][i] = partial.x[0][i] = 0.0f;
  const auto* const a_rows = reinterpret_cast<const ElementA*>(p.a);
  const auto* const b_rows = reinterpret_cast<const ElementB*>(p.b);
  A a;
  B b;
  a.load(a_rows, p.lda, row0, p.rows, 0, p.depth);
  b.load(b_rows, p.ldb, col0, p.cols, 0, p.depth);
  int chunks = 0;
#pragma unroll 1
  for (long k0 = 0; k0 < p.depth; k0 += Tiled::kChunk) {
    a.store(a_chunk);
    b.store(b_chunk);
    __syncthreads();
    a.load(a_rows, p.lda, row0, p.rows, k0 + Tiled::kChunk, p.depth);
    b.load(b_rows, p.ldb, col0, p.cols, k0 + Tiled::kChunk, p.depth);
#pragma unroll
    for (int k = 0; k < Tiled::kChunk; k++) {
      float x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++)
        x[r] = a_chunk[k * A::kStride + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4];
#pragma unroll
      for (int j = 0; j < 4 * kG; j++) {
        const float2 y = *reinterpret_cast<const float2*>(&b_chunk[k * B::kStride + 8 * j + 2 * (lane % 4)]);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
          float* sum = &partial.x[r / 2][4 * j + 2 * (r % 2)];
          sum[0] = fma(x[r], y.x, sum[0]);
          sum[1] = fma(x[r], y.y, sum[1]);
        }
      }
    }
    if (++chunks % Tiled::kPromoteChunks == 0 || k0 + Tiled::kChunk >= p.depth)
#pragma unroll
      for (int i = 0; i < kMI * 16 * kG; i++) {
        acc.x[0][i] += partial.x[0][i];
        partial.x[0][i] = 0.0f;
      }
    __syncthreads();
  }
  launch_dependent_grids();
  epilogue<false, false>(body, p, acc, static_cast<int>(row0), static_cast<int>(col0), storage, 1);
  arrive_and_finalize_rows<kMI>(body, p, static_cast<int>(row0), static_cast<int>(col0), storage, 1);
}

RF_FN float4 load_vec4(const float* p) { return *reinterpret_cast<const float4*>(p); }
RF_FN float4 load_once(const float* p) {  // what no other block reads
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}

RF_FN float add_four(float sum, float4 x, float4 y) {
  return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
}

// Adds `sum` across the lanes of a warp: each exchange halves the sums that a lane keeps and doubles the
// lanes that they cover. The first Half / Mask sums are left, those from `mine` on.
template <int Half, int Mask, int N> RF_FN void halve(float (&sum)[N], int lane, int& mine) {
  const bool upper = lane & Mask;
#pragma unroll
  for (int i = 0; i < Half; i++) {
    const float send = upper ? sum[i] : sum[i + Half], keep = upper ? sum[i + Half] : sum[i];
    sum[i] = keep + __shfl_xor_sync(kFullMask, send, Mask);
  }
  if (upper) mine += Half;
  if constexpr (Mask > 1) halve<Half / 2, Mask / 2>(sum, lane, mine);
}

template <class T, class ElementA, class ElementB, class Body>
__global__ void __launch_bounds__(T::kThreads, T::kRows <= 4 ? 2 : 1)
    matmul_skinny(const __grid_constant__ Problem p, const __grid_constant__ Body body, bool aligned) {
  constexpr int kEach = T::kWarpRows, R = T::kRows;
  constexpr bool kAcross = T::kAcross;
  __shared__ float partials[T::kSplitK][R][T::kLong];
  __shared__ EpilogueStorage<Body, T::kG> storage;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp % T::kRowWarps, k_split = warp / T::kRowWarps;
  using LongElement = std::conditional_t<kAcross, ElementA, ElementB>;
  using ShortElement = std::conditional_t<kAcross, ElementB, ElementA>;
  const auto* const long_side = reinterpret_cast<const LongElement*>(kAcross ? p.a : p.b);
  const auto* const short_side = reinterpret_cast<const ShortElement*>(kAcross ? p.b : p.a);
  const long long_ld = kAcross ? p.lda : p.ldb, short_ld = kAcross ? p.ldb : p.lda;
  const int long_rows = static_cast<int>(kAcross ? p.rows : p.cols),
            short_rows = static_cast<int>(kAcross ? p.cols : p.rows);
  const int first = blockIdx.x * T::kLong + row_warp * kEach;
  wait_on_dependent_grids();
  look_in_first_block(body);

  const LongElement* const rows = long_side + min(first, long_rows - 1) * long_ld;
  unsigned row[kEach];  // from `rows` on; beyond the last, that again
#pragma unroll
  for (int c = 0; c < kEach; c++)
    row[c] = static_cast<unsigned>(min(c, max(long_rows - 1 - first, 0))) * static_cast<unsigned>(long_ld);
  const auto short_row = [&](int r) {
    return static_cast<unsigned>(min(r, short_rows - 1)) * static_cast<unsigned>(short_ld);
  };
  float sum[R * kEach];
#pragma unroll
  for (int i = 0; i < R * kEach; i++) sum[i] = 0.0f;
  constexpr int kStep = 128 * T::kSplitK;
  const int depth = static_cast<int>(p.depth), whole = aligned ? depth / kStep * kStep : 0;
  int k = 128 * k_split + 4 * lane;
  // Many sums leave room for few warps: then the next step's reads are under way during this one's sums.
  constexpr bool kAhead = R > 4;
  float4 next[kEach];
  if (kAhead && k < whole)
#pragma unroll
    for (int c = 0; c < kEach; c++) next[c] = load_once(rows + (row[c] + k));
#pragma unroll 1
  for (; k < whole; k += kStep) {
    float4 y[kEach];
    const int ahead = kAhead && k + kStep < whole ? k + kStep : k;
#pragma unroll
    for (int c = 0; c < kEach; c++) {
      if (kAhead) y[c] = next[c];
      (kAhead ? next : y)[c] = load_once(rows + (row[c] + ahead));
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float4 x = load_vec4(short_side + (short_row(r) + k));
#pragma unroll
      for (int c = 0; c < kEach; c++) sum[r * kEach + c] = add_four(sum[r * kEach + c], x, y[c]);
    }
  }
#pragma unroll 1
  for (k = whole + 32 * k_split + lane; k < depth; k += 32 * T::kSplitK) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float x = read_one(short_side + (short_row(r) + k));
#pragma unroll
      for (int c = 0; c < kEach; c++) sum[r * kEach + c] = fma(x, read_one(rows + (row[c] + k)), sum[r * kEach + c]);
    }
  }

  int mine = 0;
  halve<R * kEach / 2, 16>(sum, lane, mine);
  constexpr int kLeft = R * kEach / 32;
#pragma unroll
  for (int i = 0; i < kLeft; i++)
    partials[k_split][(mine + i) / kEach][row_warp * kEach + (mine + i) % kEach] = sum[i];
  __syncthreads();
  launch_dependent_grids();
  if (threadIdx.x >= 128) return;

  Fragment<1, 1> acc;
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int down = 16 * warp + 8 * (i / 2 % 2) + lane / 4, right = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    const int r = kAcross ? right : down, c = kAcross ? down : right;
    acc.x[0][i] = 0.0f;
    if (r < short_rows && r < R)
#pragma unroll
      for (int from = 0; from < T::kSplitK; from++) acc.x[0][i] += partials[from][r][c];
  }
  const int row0 = kAcross ? blockIdx.x * T::kLong : 0, col0 = kAcross ? 0 : blockIdx.x * T::kLong;
  epilogue<false, false>(body, p, acc, row0, col0, storage, 1);
  arrive_and_finalize_rows<T::kMI>(body, p, row0, col0, storage, 1);
}

}  // namespace rf

// Launch: the host side of the plain product, rf::matmul<Plain>.

namespace rf {

template <class A, class B, class Body> struct Product<PlainOf<A, B>, Body> {
  template <class T>
  static Partition<Body> partition(long rows, long cols) {
    return {rows, cols, 64 * T::kMI, 32 * T::kG};
  }

  // Of any kernel that could be chosen: the depth is not known here.
  static Error bytes(long rows, long cols, long, size_t& scratch, size_t& arrivals, long) {
    static_assert(!Body::kBatched, "of a batch only tensor cores make products");
    const Partition<Body> tiled = partition<Tiled>(rows, cols), skinny = partition<Skinny<4, false>>(rows, cols);
    scratch = tiled.bytes() > skinny.bytes() ? tiled.bytes() : skinny.bytes();
    arrivals = (tiled.arrivals() > skinny.arrivals() ? tiled.arrivals() : skinny.arrivals()) * sizeof(unsigned);
    return nullptr;
  }

  template <class T>
  static Error skinny(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                    cudaStream_t stream) {
    const auto by_four = [](const Operand& s, size_t element) {
      return reinterpret_cast<uintptr_t>(s.plain) % (4 * element) == 0 && s.ld % 4 == 0;
    };
    const unsigned blocks = static_cast<unsigned>(blocks_of(T::kAcross ? a.rows : b.rows, T::kLong));
    const Partition<Body> grid = partition<T>(a.rows, b.rows);
    const Problem problem = grid.problem(a, b, depth, workspace);
    RF_TRY(launch(matmul_skinny<T, A, B, Body>, blocks, T::kThreads, 0, stream, LaunchMode::overlapping,
                  "launching the skinny product", problem, body, by_four(a, sizeof(A)) && by_four(b, sizeof(B))));
    return grid.finalize(body, problem, stream);
  }

  static Error run(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    constexpr long kFar = 1L << 28;  // eight rows this far apart are within 2^31 elements
    if (depth >= 128 && a.ld < kFar && b.ld < kFar) {  // a warp has four of k for each lane
      if (a.rows <= 4) return skinny<Skinny<4, false>>(body, a, b, depth, workspace, stream);
      if (a.rows <= 8) return skinny<Skinny<8, false>>(body, a, b, depth, workspace, stream);
      if (a.rows <= 16) return skinny<Skinny<16, false>>(body, a, b, depth, workspace, stream);
      if (b.rows <= 16) return skinny<Skinny<16, true>>(body, a, b, depth, workspace, stream);
    }
    const Partition<Body> grid = partition<Tiled>(a.rows, b.rows);
    const Problem problem = grid.problem(a, b, depth, workspace);
    const long blocks = blocks_of(a.rows, Tiled::kTileRows) * blocks_of(b.rows, Tiled::kTileCols);
    if (blocks > INT32_MAX) return error("a product of %ld x %ld has too many tiles", a.rows, b.rows);
    RF_TRY(launch(matmul_tiled<A, B, Body>, static_cast<unsigned>(blocks), Tiled::kThreads, 0, stream,
                  LaunchMode::overlapping, "launching the plain product", problem, body));
    return grid.finalize(body, problem, stream);
  }
};

}  // namespace rf

// Lanes: four consecutive columns at once, for the kernels that are bound by memory.
//
// Why: a thread that moves 16 bytes with one instruction needs a quarter of the instructions, and
// keeps four times the bytes in flight. Generated bodies are templates on their lanes `V` and their
// position `C`: here V is `Vec4` at a `Vec4At`, or one number at a column where rows do not start at
// multiples of 16 bytes. A comparison of Vec4s gives a `Vec4::Mask`; numbers convert to Vec4s.
//
// Layout: a Vec4At's columns start at a multiple of 4, its addresses at multiples of 16 bytes (of 8 where
// elements have 16 bits).

namespace rf {

struct Vec4At { long start; };

struct alignas(16) Vec4 {
  struct Mask { bool in[4]; };
  Real x[4];
  Vec4() = default;
  RF_FN Vec4(Real a) : x{a, a, a, a} {}
  RF_FN Vec4(float4 a) : x{a.x, a.y, a.z, a.w} {}
  template <class F> static RF_FN Vec4 each(F f) {
    Vec4 y;
#pragma unroll
    for (int i = 0; i < 4; i++) y.x[i] = f(i);
    return y;
  }
};

// Four elements by one access of 16 bytes, of doubles by two. `read` loads a whole vector type. A store
// written so stays one instruction: the compiler takes the assignment of a float4 apart. Without
// "memory" later loads may move before it; no body reads what it writes.
template <class Read> RF_FN Vec4 read_vec4(const float* p, Read read) {
  return Vec4(read(reinterpret_cast<const float4*>(p)));
}
RF_FN void write_vec4(float* p, Vec4 v) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(float(v.x[0])), "f"(float(v.x[1])),
               "f"(float(v.x[2])), "f"(float(v.x[3])));
}
template <class Read> RF_FN Vec4 read_vec4(const double* p, Read read) {
  const double2 a = read(reinterpret_cast<const double2*>(p)), b = read(reinterpret_cast<const double2*>(p) + 1);
  const Real x[4] = {Real(a.x), Real(a.y), Real(b.x), Real(b.y)};
  return Vec4::each([&](int i) { return x[i]; });
}
RF_FN void write_vec4(double* p, Vec4 v) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p), "d"(double(v.x[0])), "d"(double(v.x[1])));
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p + 2), "d"(double(v.x[2])), "d"(double(v.x[3])));
}

template <class Read> RF_FN Vec4 read_vec4(const bool* p, Read read) {
  const uint32_t bytes = read(reinterpret_cast<const uint32_t*>(p));
  return Vec4::each([&](int i) { return Real((bytes >> 8 * i & 255) != 0); });
}

template <class V> RF_FN V lanes(Vec4 x) { return x; }
template <class V, class T> RF_FN V column(const T* p, Vec4At c) {
  return read_vec4(p + c.start, [](const auto* from) { return *from; });
}
template <class V, class T> RF_FN V full(const T* p, long offset, Vec4At c) { return column<V>(p + offset, c); }
template <class T> RF_FN void put(T* p, long offset, Vec4At c, Vec4 v) { write_vec4(p + offset + c.start, v); }

#define RF_ARITHMETIC(op)                                                              \
  RF_FN Vec4 operator op(Vec4 a, Vec4 b) {                                             \
    return Vec4::each([&](int i) { return a.x[i] op b.x[i]; });                        \
  }
RF_ARITHMETIC(+) RF_ARITHMETIC(-) RF_ARITHMETIC(*) RF_ARITHMETIC(/)
#undef RF_ARITHMETIC
RF_FN Vec4 operator-(Vec4 a) { return Vec4::each([&](int i) { return -a.x[i]; }); }

#define RF_COMPARISON(op)                                                              \
  RF_FN Vec4::Mask operator op(Vec4 a, Vec4 b) {                                       \
    return {{a.x[0] op b.x[0], a.x[1] op b.x[1], a.x[2] op b.x[2], a.x[3] op b.x[3]}}; \
  }
RF_COMPARISON(<) RF_COMPARISON(<=) RF_COMPARISON(>) RF_COMPARISON(>=) RF_COMPARISON(==)
RF_COMPARISON(!=)
#undef RF_COMPARISON

RF_FN Vec4 where(Vec4::Mask mask, Vec4 yes, Vec4 no) {
  return Vec4::each([&](int i) { return mask.in[i] ? yes.x[i] : no.x[i]; });
}

template <class V> RF_FN V mul_rn(Vec4 a, Vec4 b) {
  return Vec4::each([&](int i) { return mul_rn<Real>(a.x[i], b.x[i]); });
}

#define RF_MATH(name) \
  RF_FN Vec4 name(Vec4 a) { return Vec4::each([&](int i) { return name(a.x[i]); }); }
RF_MATH(exp) RF_MATH(expm1) RF_MATH(log) RF_MATH(log1p) RF_MATH(sqrt) RF_MATH(rsqrt) RF_MATH(sin)
RF_MATH(cos) RF_MATH(tanh) RF_MATH(erf) RF_MATH(abs) RF_MATH(floor) RF_MATH(ceil) RF_MATH(trunc)
RF_MATH(round) RF_MATH(relu) RF_MATH(sigmoid) RF_MATH(gelu)
RF_MATH(mish)
#undef RF_MATH
RF_FN Vec4 pow(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return pow(a.x[i], b.x[i]); }); }
RF_FN Vec4 maximum(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return maximum(a.x[i], b.x[i]); }); }
RF_FN Vec4 minimum(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return minimum(a.x[i], b.x[i]); }); }
RF_FN Vec4 fma(Vec4 a, Vec4 b, Vec4 c) { return Vec4::each([&](int i) { return fma(a.x[i], b.x[i], c.x[i]); }); }

// What a kernel knows of its lanes: how many, and where the n-th of a row's are ("unit" n).
template <class V> struct LanesOf;
template <> struct LanesOf<Vec4> {
  static constexpr int count = 4;
  static RF_FN Vec4At at(long unit) { return {4 * unit}; }
  static RF_FN Real get(const Vec4& v, int lane) { return v.x[lane]; }
  // Reads what another block has written: not by way of the L1.
  static RF_FN Vec4 fresh(const Real* p) {
    return read_vec4(p, [](const auto* from) { return __ldcg(from); });
  }
};
template <> struct LanesOf<Real> {
  static constexpr int count = 1;
  static RF_FN long at(long unit) { return unit; }
  static RF_FN Real get(Real v, int) { return v; }
  static RF_FN Real fresh(const Real* p) { return __ldcg(p); }
};

}  // namespace rf

// Block: what the kernels that reduce rows and columns share: their start, and how partials of
// one result are merged across lanes, warps and blocks, always in the same order.
#include <type_traits>


namespace rf {

// sync_dependent_grids() of a kernel that a call may start first.
template <class Body> RF_FN void sync_dependent_grids(const Body& body) {
  sync_dependent_grids();
  look_in_first_block(body);
}

// The I-th operand that several passes of a body read along the width.
template <class T, int I> struct Reused { const T* p; };
template <class V, class T, int I, class C> RF_FN V column(Reused<T, I> a, C c) { return column<V>(a.p, c); }
template <class V, class T, int I, class C> RF_FN V full(Reused<T, I> a, long offset, C c) {
  return full<V>(a.p, offset, c);
}

// One column of a row that is held; what does not count is read like what does, and not stored.
struct MaskedColumn {
  int col;
  bool counts;
};
// Where a row starts, in one register pair: a column is then one instruction away, or a constant. Of an address
// that it sees through, the assembler computes the whole sum anew for every column.
template <class T> RF_FN T* start_of_row(T* p) {
  size_t address = __cvta_generic_to_global(p);
  asm("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}
template <class V, class T> RF_FN V column(const T* p, MaskedColumn c) { return read_one(p + c.col); }
template <class V, class T> RF_FN V full(const T* p, long offset, MaskedColumn c) {
  return read_one(start_of_row(p + offset) + c.col);
}
template <class T> RF_FN void put(T* p, long offset, MaskedColumn c, Real v) {
  T* to = start_of_row(p + offset) + c.col;
  if (c.counts) write_one(to, v);
}

// A position that knows what has been read there: each of N such operands is read once. What `has` says is
// known to the compiler where passes are unrolled; there the values stay in registers.
template <class V, int N, class C> struct CachedAt {
  C at;
  V* value;
  bool* has;
};
template <class V, int N> struct RegisterCache {
  V value[N ? N : 1];
  bool has[N ? N : 1] = {};
  template <class C> RF_FN CachedAt<V, N, C> at(C position) { return {position, value, has}; }
};
template <class V, class T, int I, int N, class C> RF_FN V full(Reused<T, I> a, long offset, CachedAt<V, N, C> c) {
  if (!c.has[I]) c.value[I] = full<V>(a.p, offset, c.at), c.has[I] = true;
  return c.value[I];
}
template <class V, class T, int I, int N, class C> RF_FN V column(Reused<T, I> a, CachedAt<V, N, C> c) {
  return full<V>(a, 0, c);
}
template <class V, class T, int N, class C> RF_FN V full(const T* p, long offset, CachedAt<V, N, C> c) {
  return full<V>(p, offset, c.at);
}
template <class V, class T, int N, class C> RF_FN V column(const T* p, CachedAt<V, N, C> c) {
  return column<V>(p, c.at);
}
template <class T, int N, class C> RF_FN void put(T* p, long offset, CachedAt<Real, N, C> c, Real v) {
  put(p, offset, c.at, v);
}
template <class T, int N> RF_FN void put(T* p, long offset, CachedAt<Vec4, N, Vec4At> c, Vec4 v) {
  put(p, offset, c.at, v);
}

// A partial for each of a thread's lanes.
template <class M, class V> struct LanePartials {
  using Partial = typename M::Partial;
  Partial of[LanesOf<V>::count];
  RF_FN LanePartials() {
#pragma unroll
    for (Partial& p : of) p = M::identity();
  }
  RF_FN void accumulate(const V& v) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::accumulate(of[l], LanesOf<V>::get(v, l));
  }
  RF_FN void merge(const LanePartials& o) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::merge(of[l], o.of[l]);
  }
  RF_FN Partial all() {
#pragma unroll
    for (int half = LanesOf<V>::count / 2; half; half /= 2)
#pragma unroll
      for (int l = 0; l < half; l++) M::merge(of[l], of[l + half]);
    return of[0];
  }
};

// What a thread has accumulated of a row. Sums and the like have a partial for each of a thread's lanes, any other
// takes the values of a batch at once.
template <class M, class V> struct Accumulated {
  LanePartials<M, V> partials;
  template <int N, class In> RF_FN void accumulate(const V (&x)[N], In in) {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (in(k)) partials.accumulate(x[k]);
  }
  RF_FN void merge(const Accumulated& o) { partials.merge(o.partials); }
  RF_FN typename M::Partial all() { return partials.all(); }
};
template <class M, class V> struct AccumulatedAtOnce {
  typename M::Partial partial = M::identity();
  template <int N, class In> RF_FN void accumulate(const V (&x)[N], In in) {
    constexpr int kLanes = LanesOf<V>::count;
    Real values[N * kLanes];
    bool counts[N * kLanes];
#pragma unroll
    for (int i = 0; i < N * kLanes; i++)
      values[i] = LanesOf<V>::get(x[i / kLanes], i % kLanes), counts[i] = in(i / kLanes);
    M::accumulate_batch(partial, values, counts);
  }
  RF_FN void merge(const AccumulatedAtOnce& o) { M::merge(partial, o.partial); }
  RF_FN typename M::Partial all() { return partial; }
};
template <class M, class V>
using AccumulatedOf = std::conditional_t<kByLane<M>, Accumulated<M, V>, AccumulatedAtOnce<M, V>>;

template <class M> RF_FN typename M::Partial from_lane(typename M::Partial p, int lane) {
#pragma unroll
  for (int w = 0; w < M::kWords; w++) p.w[w] = __shfl_sync(kFullMask, p.w[w], lane);
  return p;
}

// The partial of each group of `lanes` neighbours of a warp (a power of two), for all of them.
template <class M> RF_FN typename M::Partial warp_reduce(typename M::Partial p, int lanes) {
  for (int mask = lanes / 2; mask; mask /= 2) {
    typename M::Partial other;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) other.w[w] = __shfl_xor_sync(kFullMask, p.w[w], mask);
    M::merge(p, other);
  }
  if (kByLane<M>) return p;
  // a merge of several words may round differently in the other order: all take what the first has
  return from_lane<M>(p, threadIdx.x & 31 & ~(lanes - 1));
}

// The partial of a group of whole warps, for all of its threads. `shared`, one partial a warp, must not be
// written again before the group's next barrier but one.
template <class M>
RF_FN typename M::Partial group_reduce(typename M::Partial p, int thread, int threads, int barrier, Real* shared) {
  p = warp_reduce<M>(p, 32);
  if (threads == 32) return p;
  const int lane = thread % 32, warps = threads / 32;
  if (lane == 0)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) shared[M::kWords * (thread / 32) + w] = p.w[w];
  named_barrier_sync(barrier, threads);
  p = M::identity();
  if (lane < warps)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) p.w[w] = shared[M::kWords * lane + w];
  return warp_reduce<M>(p, 32);
}

// Whether this block is the last of `blocks` to come here; what the others wrote before is visible.
// All threads come here.
RF_FN bool last_block(unsigned* arrivals, unsigned blocks) {
  __shared__ unsigned arrival;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrival = atomicInc(arrivals, blocks - 1);  // back to 0 after the last
  __syncthreads();
  const bool last = arrival == blocks - 1;
  if (last) __threadfence();
  return last;
}

}  // namespace rf

// Column partials: what reductions down columns keep of the rows seen so far, and how such partials merge.
//
// Why: both a pass over stored values (columns.cuh) and a product's tiles (finalize.cuh) leave partials of a
// column here and there; they must be merged in an order that depends on the sizes alone.

namespace rf {

constexpr int kColumnThreads = 256;  // of a block, at most

// A thread's partials of all reductions: a word of each of its lanes, and of how many rows they are.
template <class Monoids, class V> struct ColumnPartials {
  static constexpr int kLanes = LanesOf<V>::count, kWords = Words<Monoids>::column;
  Real words[kWords][kLanes], count = 0.0f;

  template <class D, class S> RF_FN typename D::Partial get(S, int lane) const {
    typename D::Partial p;
#pragma unroll
    for (int w = 0; w < D::kWords; w++) p.w[w] = words[Before<S::index, Monoids>::column + w][lane];
    return p;
  }
  template <class D, class S> RF_FN void set(S, int lane, const typename D::Partial& p) {
#pragma unroll
    for (int w = 0; w < D::kWords; w++) words[Before<S::index, Monoids>::column + w][lane] = p.w[w];
  }
  RF_FN ColumnPartials() {
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
      const Real none[1] = {0.0f};
      const bool in[1] = {false};
#pragma unroll
      for (int l = 0; l < kLanes; l++) set<D>(step, l, D::template of<1>(none, in, 0.0f));
    });
  }
  // Takes the partials of rows that come after those it has. One without rows is left alone: its zero
  // weight would make NaN of an infinite mean.
  RF_FN void merge(const ColumnPartials& o) {
    if (o.count == 0.0f) return;
    const Weight weight(count, o.count);
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
#pragma unroll
      for (int l = 0; l < kLanes; l++)
        set<D>(step, l, D::merge(get<D>(step, l), o.template get<D>(step, l), weight));
    });
    count += o.count;
  }
};

// Merges the partials of the block's row groups, in pairs, into those of the first.
template <class LanePartials>
RF_FN void merge_row_groups(LanePartials& partials, int lane, int row_group, int slice, int lanes, int row_groups) {
  constexpr int kSlots = kColumnThreads / 2, kLanes = LanePartials::kLanes;
  __shared__ Real words[LanePartials::kWords][kLanes][kSlots], counts[kSlots];
  for (int most = row_groups; most > 1; most = (most + 1) / 2) {
    const int half = (most + 1) / 2, from = row_group >= half ? row_group - half : row_group;
    const int slot = (slice * (most / 2) + from) * lanes + lane;
    if (row_group >= half && row_group < most) {
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) words[w][l][slot] = partials.words[w][l];
      counts[slot] = partials.count;
    }
    __syncthreads();
    if (row_group + half < most) {
      LanePartials other;
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) other.words[w][l] = words[w][l][slot];
      other.count = counts[slot];
      partials.merge(other);
    }
    __syncthreads();
  }
}

// Of the chunks that left their partials in a workspace, `first` and every `step`-th after it, merged in
// that order. words: the first chunk's first word of this thread's lanes; words are `width` apart and a
// chunk's words follow one another. A chunk has `chunk_rows` of `count` rows, the last what is left.
template <class LanePartials, class V>
RF_FN LanePartials merge_chunks(const Real* words, long width, long first, long step, long chunks, long chunk_rows,
                         long count) {
  constexpr int kAtOnce = 4;  // these reads come from the L2
  LanePartials partials;
#pragma unroll 1
  for (long c = first; c < chunks; c += kAtOnce * step) {
    LanePartials next[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) {
      const long from = c + k * step, left = count - from * chunk_rows;
      next[k].count = left <= 0 ? 0.0f : Real(left < chunk_rows ? left : chunk_rows);
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++) {
        const V word = LanesOf<V>::fresh(words + ((left <= 0 ? c : from) * LanePartials::kWords + w) * width);
#pragma unroll
        for (int l = 0; l < LanePartials::kLanes; l++) next[k].words[w][l] = LanesOf<V>::get(word, l);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) partials.merge(next[k]);
  }
  return partials;
}

// use(Step<S>, lane, state) for each monoid and lane.
template <class Monoids, class V, class Use>
RF_FN void for_columns(const ColumnPartials<Monoids, V>& partials, Use use) {
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using D = Down<decltype(monoid)>;
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) {
      typename D::State state;
      D::merge(state, partials.template get<D>(step, l), partials.count);
      use(step, l, state);
    }
  });
}

}  // namespace rf

// Finalize: what a product's columns, and rows of many partial results, are reduced to, from what its fragments left.
//
// Why kernels of their own: a fragment that finalized its columns would wait until what it stored is visible to others
// and for an atomic's answer, while the tensor cores idle. These kernels' start is hidden behind the product's end
// (programmatic dependent launch), and their reads come from L2. And where a row has hundreds of partials, the last
// warpgroup to arrive would merge them alone, while the device waits.
//
//   kernel             threads of a block                                registers   shared memory
//   finalize_columns   32 columns x 8 row groups, each every 8th block   47 to 57    1.5 to 2.5 KB: a word each
//                      of rows, then merged in pairs
//   finalize_rows      32 rows x 16 groups of neighbouring partials,     40 to 64    2 to 14 KB: 16 words a monoid's
//                      then merged first to last                                     word and row

namespace rf {

// Threads: 32 neighbouring columns by kFinalizeRowGroups, each of which takes every kFinalizeRowGroups-th block of
// rows.
constexpr int kFinalizeRowGroups = kColumnThreads / 32;

template <class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    finalize_columns_kernel(const __grid_constant__ Body body, const float* partials, long rows, long cols,
                          long block_rows, long blocks) {
  using Mine = ColumnPartials<typename Body::ColumnMonoids, float>;
  const int lane = threadIdx.x % 32, row_group = threadIdx.x / 32;
  const long col = 32L * blockIdx.x + lane;
  sync_dependent_grids();
  Mine mine = merge_chunks<Mine, float>(partials + (col < cols ? col : cols - 1), cols, row_group, kFinalizeRowGroups,
                                        blocks, block_rows, rows);
  merge_row_groups(mine, lane, row_group, 0, 32, kFinalizeRowGroups);
  if (row_group == 0 && col < cols) {
    typename Body::Column column;
    for_columns(mine, [&](auto step, int, const auto& state) { body.set_column(step, column, state); });
    body.finalize_column(column, col);
  }
}

// p: the product's, whose fragments have `block_rows` rows.
template <class Body>
Error finalize_columns(const Body& body, const Problem& p, long block_rows, cudaStream_t stream) {
  return launch(finalize_columns_kernel<Body>, static_cast<unsigned>(blocks_of(p.cols, 32)), kColumnThreads, 0,
                stream, LaunchMode::overlapping, "launching the end of reductions of columns", body,
                static_cast<const float*>(p.column_partials), p.rows, p.cols, block_rows,
                blocks_of(p.rows, block_rows));
}

// Threads: 32 neighbouring rows by kFinalizeColumnGroups, each of which takes as many of a row's partials, next to each
// other.
constexpr int kFinalizeColumnGroups = 16;

template <class Body>
__global__ void __launch_bounds__(32 * kFinalizeColumnGroups, 1)
    finalize_rows_kernel(const __grid_constant__ Body body, const float* partials, long rows, int blocks) {
  using RowMonoids = typename Body::RowMonoids;
  constexpr int kWords = Words<RowMonoids>::row;
  __shared__ float words[kFinalizeColumnGroups][kWords][32];
  const int lane = threadIdx.x % 32, row_group = threadIdx.x / 32;
  const long row = 32L * blockIdx.x + lane, mine = row < rows ? row : rows - 1;
  const int first = static_cast<int>(long(blocks) * row_group / kFinalizeColumnGroups);
  const int count = static_cast<int>(long(blocks) * (row_group + 1) / kFinalizeColumnGroups) - first;
  sync_dependent_grids();
  for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
    using M = decltype(monoid);
    constexpr int at = Before<decltype(s)::index, RowMonoids>::row;
    const auto partial =
        M::partial(merge_partials<M>(partials + (first * rows + mine) * kWords + at, rows * kWords, count));
#pragma unroll
    for (int w = 0; w < M::kWords; w++) words[row_group][at + w][lane] = partial.w[w];
  });
  __syncthreads();
  if (row_group > 0 || row >= rows) return;
  float results[Words<RowMonoids>::results];
  for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
    using M = decltype(monoid);
    using At = Before<decltype(s)::index, RowMonoids>;
    typename M::State state;
#pragma unroll 4
    for (int t = 0; t < kFinalizeColumnGroups; t++) {
      typename M::Partial partial;
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partial.w[w] = words[t][At::row + w][lane];
      M::merge(state, partial);
    }
    M::results(state, results + At::results);
  });
  body.finalize_row(row, results);
}

// p: the product's, whose rows have `blocks` partials each.
template <class Body> Error finalize_rows(const Body& body, const Problem& p, long blocks, cudaStream_t stream) {
  return launch(finalize_rows_kernel<Body>, static_cast<unsigned>(blocks_of(p.rows, 32)), 32 * kFinalizeColumnGroups, 0,
                stream, LaunchMode::overlapping, "launching the end of reductions of rows", body,
                static_cast<const float*>(p.row_partials), p.rows, static_cast<int>(blocks));
}

}  // namespace rf

// Row partition: which threads hold, or pass over, which units of a row; from the sizes alone.
//
// Why: a load of a warp should touch few lines of the L1. Eight lanes of four columns fill a
// line; of lanes of one, in rows that start anywhere, it takes a whole warp. So these go along the row first,
// and a thread has several units, or several rows, only so that enough loads are in flight.

namespace rf {

constexpr int kRowThreads = 256, kMostThreadsPerRow = 512, kMostThreadsPerHeldRow = 1024;
constexpr long kMultiBlockWidth = 8192, kMultiBlockBlocks = 1 << 14;  // by pass: of a block at least; blocks about
constexpr long kMultiBlockFrom = 8 * kMultiBlockWidth, kMultiBlockRows = 2048;  // rows as wide, and as few, are split
constexpr long kThreadsToSaturate = 1 << 17;                                // threads that keep memory busy
template <class V> constexpr int kBatch = LanesOf<V>::count == 4 ? 4 : 8;  // units in flight in a thread

// How rows of up to `most` units are held: so many units of each of so many rows in a thread, and so many
// threads a row. 0: as few as suffice. A number is known to the compiler: addresses then differ by constants,
// shuffles need no loop, and no division finds a thread's row.
struct ResidentShape {
  int rows, units, threads;
  long most;
};
// The shorter rows first. longest: that is held at all; cramped: by threads that read or keep more than a value of an
// element; once: if one pass alone reads it; block: its threads.
template <class V> struct ResidentShapes;
template <> struct ResidentShapes<Vec4> {
  static constexpr ResidentShape of[] = {
      {2, 2, 0, 8}, {1, 4, 0, kMostThreadsPerRow * 4}, {1, 8, 0, kMostThreadsPerHeldRow * 8}};
  static constexpr long longest = kMostThreadsPerHeldRow * 8, cramped = kMostThreadsPerRow * 4, once = 32;
  static constexpr int block = kMostThreadsPerHeldRow;
};
// A row fills more than half of what its threads can hold, so the first half of each one's units need no test.
template <> struct ResidentShapes<Real> {
  static constexpr ResidentShape of[] = {
      {4, 2, 0, 8},    {4, 2, 8, 16},   {4, 2, 16, 32},    {4, 2, 32, 64}, {2, 4, 32, 128},
      {1, 8, 32, 256}, {1, 8, 64, 512}, {1, 8, 128, 1024}, {1, 16, 0, kRowThreads * 16},
  };
  static constexpr long longest = kRowThreads * 16, cramped = longest, once = 1024;
  static constexpr int block = kRowThreads;
};

// How a space is partitioned.
template <class V> struct RowPartition {
  enum Strategy { register_resident, warps_per_row, multi_block } strategy;
  int shape = 0;        // of Holds<V>
  long units, chunks;  // of a row
  long chunk_width;    // a chunk's columns
  int threads = 0;     // of a row: lanes of a warp, or whole warps
  // again: whether a row is read by more than one pass. roomy: whether threads read and keep one value of an element.
  constexpr RowPartition(long rows, long width, bool again, bool roomy)
      : strategy(register_resident), units(width / LanesOf<V>::count), chunks(0),
        chunk_width(kMultiBlockWidth * blocks_of(blocks_of(width, kMultiBlockWidth) * rows + 1, kMultiBlockBlocks)) {
    chunks = blocks_of(width, chunk_width);
    if ((rows <= kMultiBlockRows && width >= kMultiBlockFrom) || units > INT32_MAX / 2)
      strategy = multi_block, threads = kRowThreads;
    else if (units == 0) strategy = warps_per_row, threads = 32;
    else if (units <= (!again ? ResidentShapes<V>::once : roomy ? ResidentShapes<V>::longest : ResidentShapes<V>::cramped))
      strategy = register_resident, threads = threads_if_resident();
    else strategy = warps_per_row, threads = threads_per_row(rows);
  }
  constexpr int rows_of_thread() const { return strategy == register_resident ? ResidentShapes<V>::of[shape].rows : 1; }
  // As few lanes as hold a row, or as few warps.
  constexpr int threads_if_resident() {
    while (units > ResidentShapes<V>::of[shape].most) shape++;
    const int each = ResidentShapes<V>::of[shape].units, known = ResidentShapes<V>::of[shape].threads;
    if (known) return known;
    const long lanes = covering_power_of_two(blocks_of(units, each));
    return int(lanes < 32 ? lanes : 32 * blocks_of(units, 32 * each));
  }
  // Whole batches a thread: two where there are threads enough without a third.
  constexpr int threads_per_row(long rows) const {
    constexpr int batch = kBatch<V>;
    const auto threads_of = [&](long batches) { return 32 * blocks_of(units, 32 * batch * batches); };
    long batches = blocks_of(units, long(kMostThreadsPerRow) * batch);
    if (batches == 1 && rows * threads_of(2) >= kThreadsToSaturate) batches = 2;
    return int(threads_of(batches) < kMostThreadsPerRow ? threads_of(batches) : kMostThreadsPerRow);
  }
};

}  // namespace rf

// Kernels of rows: passes over each row of a space of rows x width; a pass may use what earlier ones reduced.
//
// Why: everything between products is bound by memory. A row is read once from it: the passes that
// follow have it in registers or, of a long one, find it in the L1, which holds the rows
// that a multiprocessor works on.
//
// A body gives
//   Row                                what is known of a row so far
//   Monoids = List<...>                one monoid for each pass (none: a pointwise body)
//   term<V>(Step<S>, row_so_far, row, col)   the lanes that pass S reduces
//   set(Step<S>, row_so_far, row, value)     takes the result of pass S into row_so_far, or its results
//   store<V>(row_so_far, row, col)           writes full-size results      (if kStores)
//   read<V>(row, col)                        reads what store does, so that no load waits for a store
//   finalize(row_so_far, row)                writes results of one row     (if kFinalizes)
//   kReused                                  how many operands several passes read (those of type Reused)
//   kMinBlocks                               blocks on a multiprocessor (launch bounds) that hold rows by Vec4
//   kRoomy                                   whether threads of two have room for eight units; statistics of one pass,
//                                            planned for longer rows, have not
// Lanes are of four columns or, where rows do not start at multiples of 16 bytes, of one. A "unit" is one V.
//
// Layout: which threads take which units follows from the sizes alone, so results do not depend on
// the device. In order of width:
//   kernel                   who takes what                                            registers   shared memory
//   pointwise                each thread kBatch units: of as many rows (what is known    by the body   none
//                            of a column is then read once), or of one row where rows
//                            are few
//   rows_register_resident   lanes of a warp, or whole warps, hold a row in registers,   31 to 64      384 bytes: a
//                            of short rows those of several, as the table of                         partial a warp,
//                            row_partition.cuh says; those of 129 to 8192 columns only               for two passes
//                            if more than one pass reads them
//   rows_warps_per_row       whole warps take a row, kBatch units at once; small groups  39 to 56      384 bytes
//                            share a block
//   rows_multi_block         few rows that are very long: many blocks a row, one launch  40 to 56      196 bytes
//                            a pass; the last block to arrive merges the others' partials
// (registers of a thread for a softmax, a layer norm and their like; of a block: 256 threads, or up to 512)
//
// The ladder (H200, of the copy rate 4.25 TB/s): a float4 that is assigned became four stores, 0.75; one
// store, 0.96. Whole batches without branches took softmax 16384x4096 from 0.73 to 0.79, x @ v to 1.04; rows
// held in registers, softmax 149 -> 135 us, layer norm 262144x64 45 -> 35. Four batches a thread: rows fall
// out of the L1, 20% slower; blocks that loop over rows: 7% slower. Single columns by whole warps, by
// constants where the width is known: softmax 16384x1023 54 -> 45, 1000000x50 170 -> 143, layer norm 16384x1023 50 ->
// 42 (16 or 32 units a thread instead of 8: 58 and 66). Statistics in one pass: softmax 4096x393216 6131 -> 4691.
// On an H100 (copy rate 2.95): eight units of four columns, so that up to 32768 are held: norms 8192x15876 372 -> 351 us,
// 4096x11008 139 -> 124, 2048x32000 258 -> 182, softmax 4096x11008 134 -> 125, 4096x20000 263 -> 229, 2048x32000 257 ->
// 184, mean and variance alone 8192x15876 205 -> 169 (4096x20000 129 -> 122, 2048x32000 91 -> 93: not taken). Longer rows
// are read at 3.0: a batch read ahead, or its lines fetched into the L2, gave nothing, and cost where rows are odd.

namespace rf {

// What a body of rows is unless it says otherwise: pointwise.
struct RowsBody {
  struct Row {};
  using Monoids = List<>;
  static constexpr bool kStores = true, kFinalizes = false;
  static constexpr int kReused = 0, kMinBlocks = 2;
  static constexpr bool kRoomy = true;
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

// Reads the words of a Row as another block left them, not as the L1 may know them.
template <class Row> RF_FN Row row_from(const Row* p) {
  Row r{};
#pragma unroll
  for (size_t i = 0; i < sizeof(Row) / sizeof(Real); i++)
    reinterpret_cast<Real*>(&r)[i] = __ldcg(reinterpret_cast<const Real*>(p) + i);
  return r;
}

// Tells the body what pass `step` has reduced a row to.
template <class M, class Body, class Step>
RF_FN void set_results(const Body& body, Step step, typename Body::Row& r, long row, const typename M::Partial& p) {
  typename M::State state{};
  Real values[M::kResults];
  M::merge(state, p);
  M::results(state, values);
  if constexpr (M::kResults == 1) body.set(step, r, row, values[0]);
  else body.set(step, r, row, values);
}
constexpr int kMostPartialWords = 3;  // of the partials of a group

template <class Body> RF_FN void finalize_row(const Body& body, const typename Body::Row& r, long row) {
  if constexpr (Body::kFinalizes) body.finalize(r, row);
}

// Stores the units at row(k), unit(k), all read first: no load may be moved before a store.
template <class V, class Body, class RowOf, class UnitOf>
RF_FN void store_batch(const Body& body, const typename Body::Row& r, RowOf row, UnitOf unit) {
  RegisterCache<V, Body::kReused> cache[kBatch<V>];
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template read<V>(row(k), cache[k].at(LanesOf<V>::at(unit(k))));
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template store<V>(r, row(k), cache[k].at(LanesOf<V>::at(unit(k))));
}

// --- pointwise -----------------------------------------------------------------------------------
template <class V, bool kDown, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    pointwise(const __grid_constant__ Body body, long rows, long width, long tiles) {
  constexpr int kUnits = kBatch<V>;
  const typename Body::Row r{};
  const long units = width / LanesOf<V>::count, first = long(blockIdx.x) * blockDim.x + threadIdx.x;
  sync_dependent_grids(body);
  if constexpr (kDown) {  // rows row, row + groups, ...
    const long groups = (rows + kUnits - 1) / kUnits;
    if (first >= groups * units) return;
    // a 64-bit division costs 100 instructions
    const long row = groups * units <= UINT32_MAX ? unsigned(first) / unsigned(units) : first / units;
    const long unit = first - row * units;
    if (row + (kUnits - 1) * groups < rows) {
      store_batch<V>(body, r, [&](int k) { return row + k * groups; }, [&](int) { return unit; });
    } else {
#pragma unroll 1
      for (long i = row; i < rows; i += groups) body.template store<V>(r, i, LanesOf<V>::at(unit));
    }
    if constexpr (Body::kFinalizes)
      if (unit == 0)
        for (long i = row; i < rows; i += groups) body.finalize(r, i);
  } else {  // units unit, unit + blockDim.x, ... of one row
    const long row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
    const long unit = tile * kUnits * blockDim.x + threadIdx.x;
    if (unit + (kUnits - 1) * blockDim.x < units) {
      store_batch<V>(body, r, [&](int) { return row; }, [&](int k) { return unit + k * blockDim.x; });
    } else {
#pragma unroll 1
      for (int k = 0; k < kUnits; k++)
        if (unit + k * blockDim.x < units)
          body.template store<V>(r, row, LanesOf<V>::at(unit + k * blockDim.x));
    }
    if (tile == tiles - 1) {  // of a single row what four does not divide
      const long col = units * LanesOf<V>::count + threadIdx.x;
      if (col < width) body.template store<Real>(r, row, col);
    }
    if constexpr (Body::kFinalizes)
      if (unit == 0) body.finalize(r, row);
  }
}

// --- register-resident -------------------------------------------------------------------------------
template <class V, int kUnits, class Body> struct HeldBounds {
  static constexpr bool is_long = LanesOf<V>::count == 4 && kUnits > 4;
  static constexpr int threads = LanesOf<V>::count == 1 ? kRowThreads : is_long ? kMostThreadsPerHeldRow : kMostThreadsPerRow;
  static constexpr int blocks = LanesOf<V>::count == 1 || is_long ? 1 : Body::kMinBlocks;
};

// kRows rows of kUnits units a thread: `threads` lanes of a warp hold a row, or whole warps (then one). All
// passes name the same units, so a row is read once and stays in registers, of a softmax its exponentials.
template <class V, int kRows, int kUnits, int kThreads, class Body>
__global__ void __launch_bounds__(HeldBounds<V, kUnits, Body>::threads, HeldBounds<V, kUnits, Body>::blocks)
    rows_register_resident(const __grid_constant__ Body body, long rows, int units, int row_threads) {
  constexpr int kMostWarps = HeldBounds<V, kUnits, Body>::threads / 32;
  __shared__ Real shared[2][kMostWarps][kMostPartialWords];  // two passes
  constexpr bool kSingle = LanesOf<V>::count == 1;
  constexpr int kInside = kSingle ? kUnits / 2 : 0;  // units of every thread that are in the row: see Holds
  sync_dependent_grids(body);  // before any thread returns: all of the first block look
  const int threads = kThreads ? kThreads : row_threads;
  const int thread_groups = blockDim.x / threads, thread_group = threadIdx.x / threads,
            thread = threadIdx.x - thread_group * threads;
  const long first = long(blockIdx.x) * thread_groups * kRows + thread_group;
  if (threads >= 32 && first >= rows) return;  // a whole group; lanes are needed by others of their warp
  // Rows and units after the last are read like it and left out: all loads are in flight together. Single columns
  // are computed, too, and not stored: what a branch guards is computed one after another.
  long row[kRows];
  typename Body::Row r[kRows]{};
#pragma unroll
  for (int i = 0; i < kRows; i++) row[i] = first + i * thread_groups < rows ? first + i * thread_groups : rows - 1;
  const auto in = [&](int k) { return k < kInside || thread + k * threads < units; };
  int unit[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; k++) unit[k] = in(k) ? thread + k * threads : units - 1;
  const auto at = [&](int k) {
    if constexpr (kSingle) return MaskedColumn{unit[k], in(k)};
    else return LanesOf<V>::at(unit[k]);
  };
  RegisterCache<V, Body::kReused> cache[kRows][kUnits];
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    V x[kRows][kUnits];
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int k = 0; k < kUnits; k++) x[i][k] = body.template term<V>(step, r[i], row[i], cache[i][k].at(at(k)));
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      AccumulatedOf<M, V> accumulated;
      accumulated.accumulate(x[i], in);
      typename M::Partial partial = accumulated.all();
      if (kRows > 1 || threads <= 32)
        partial = warp_reduce<M>(partial, threads);
      else
        partial = group_reduce<M>(partial, thread, threads, thread_group + 1,
                                  shared[decltype(step)::index % 2][thread_group * (threads / 32)]);
      set_results<M>(body, step, r[i], row[i], partial);
    }
  });
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (first + i * thread_groups >= rows) continue;
    if constexpr (Body::kStores) {
      constexpr int kAtOnce = kSingle || kUnits <= 4 ? kUnits : 1;  // what else is read must fit beside the row
#pragma unroll
      for (int first = 0; first < kUnits; first += kAtOnce) {
#pragma unroll
        for (int k = first; k < first + kAtOnce; k++) body.template read<V>(row[i], cache[i][k].at(at(k)));
#pragma unroll
        for (int k = first; k < first + kAtOnce; k++)
          if (kSingle || in(k)) body.template store<V>(r[i], row[i], cache[i][k].at(at(k)));
      }
    }
    if constexpr (Body::kFinalizes)
      if (thread == 0) body.finalize(r[i], row[i]);
  }
}

// --- warps per row ----------------------------------------------------------------------------------
// This thread's partial of `units` units from `first` on. In the last batch units after the last are
// read like it and left out: so all loads of a batch are in flight together.
template <class M, int S, class V, class Body>
RF_FN typename M::Partial accumulate_units(const Body& body, const typename Body::Row& r, long row, long first,
                                           int units, int thread, int threads) {
  constexpr int kUnits = kBatch<V>, kChain = 16;  // batches added one by one, then merged
  AccumulatedOf<M, V> all;
  int j = thread;
#pragma unroll 1
  do {
    AccumulatedOf<M, V> chain;
#pragma unroll 1
    for (int b = 0; b < kChain && j + (kUnits - 1) * threads < units; b++, j += kUnits * threads) {
      V x[kUnits];
#pragma unroll
      for (int k = 0; k < kUnits; k++)
        x[k] = body.template term<V>(Step<S>{}, r, row, LanesOf<V>::at(first + j + k * threads));
      chain.accumulate(x, [](int) { return true; });
    }
    all.merge(chain);
  } while (j + (kUnits - 1) * threads < units);
  if (j < units) {
    V x[kUnits];
#pragma unroll
    for (int k = 0; k < kUnits; k++) {
      const int unit = j + k * threads < units ? j + k * threads : units - 1;
      x[k] = body.template term<V>(Step<S>{}, r, row, LanesOf<V>::at(first + unit));
    }
    all.accumulate(x, [&](int k) { return k == 0 || j + k * threads < units; });
  }
  return all.all();
}

template <class V, class Body>
RF_FN void store_units(const Body& body, const typename Body::Row& r, long row, long first, int units, int thread,
                       int threads) {
  constexpr int kUnits = kBatch<V>;
#pragma unroll 1
  for (int j = thread; j < units; j += kUnits * threads) {
    if (j + (kUnits - 1) * threads < units) {
      store_batch<V>(body, r, [&](int) { return row; }, [&](int k) { return first + j + k * threads; });
    } else {
#pragma unroll 1
      for (int i = j; i < units; i += threads) body.template store<V>(r, row, LanesOf<V>::at(first + i));
    }
  }
}

template <class V, class Body>
__global__ void __launch_bounds__(kMostThreadsPerRow, 1)
    rows_warps_per_row(const __grid_constant__ Body body, long rows, int units, int threads) {
  __shared__ Real shared[2][kMostThreadsPerRow / 32][kMostPartialWords];  // two passes
  const int thread_group = threadIdx.x / threads, thread = threadIdx.x - thread_group * threads;
  const long row = long(blockIdx.x) * (blockDim.x / threads) + thread_group;
  sync_dependent_grids(body);
  if (row >= rows) return;  // a whole group
  typename Body::Row r{};
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    const auto partial = accumulate_units<M, S, V>(body, r, row, 0, units, thread, threads);
    Real* partials = shared[S % 2][thread_group * (threads / 32)];
    set_results<M>(body, step, r, row, group_reduce<M>(partial, thread, threads, thread_group + 1, partials));
  });
  if constexpr (Body::kStores) store_units<V>(body, r, row, 0, units, thread, threads);
  if constexpr (Body::kFinalizes)
    if (thread == 0) body.finalize(r, row);
}

// --- multi-block ----------------------------------------------------------------------------------
template <class V, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    rows_multi_block(const __grid_constant__ Body body, long width, long chunks, long chunk_width, int pass,
                 typename Body::Row* row_states, Real* partials, unsigned* arrivals) {
  using Monoids = typename Body::Monoids;
  __shared__ Real shared[2][kRowThreads / 32 * kMostPartialWords];
  const long row = blockIdx.x / chunks, chunk = blockIdx.x - row * chunks;
  const long chunk_units = chunk_width / LanesOf<V>::count;
  const long first = chunk * chunk_units, left = width / LanesOf<V>::count - first;
  const int units = int(left < chunk_units ? left : chunk_units), thread = threadIdx.x;
  sync_dependent_grids(body);
  typename Body::Row r{};
  if (pass > 0) r = row_from(row_states + row);
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    if (pass != S) return;
    auto partial = accumulate_units<M, S, V>(body, r, row, first, units, thread, kRowThreads);
    partial = group_reduce<M>(partial, thread, kRowThreads, 0, shared[0]);
    if (thread == 0)
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partials[blockIdx.x * M::kWords + w] = partial.w[w];
    if (!last_block(arrivals + row, unsigned(chunks))) return;
    partial = M::identity();
    for (long c = thread; c < chunks; c += kRowThreads) {
      typename M::Partial next;
#pragma unroll
      for (int w = 0; w < M::kWords; w++) next.w[w] = __ldcg(partials + (row * chunks + c) * M::kWords + w);
      M::merge(partial, next);
    }
    set_results<M>(body, step, r, row, group_reduce<M>(partial, thread, kRowThreads, 0, shared[1]));
    if (thread == 0) {
      row_states[row] = r;
      if (S + 1 == Monoids::size) finalize_row(body, r, row);
    }
  });
  if constexpr (Body::kStores)
    if (pass == Monoids::size) store_units<V>(body, r, row, first, units, thread, kRowThreads);
}

}  // namespace rf

// Rows: the host side of the passes over each row (rows_kernels.cuh): which kernel, over which grid.

namespace rf {

template <class Body> constexpr bool kHoldsLong = Body::kRoomy && Body::kMinBlocks > 1;
template <class V, class Body> constexpr RowPartition<V> row_partition(long rows, long width) {
  return {rows, width, Body::Monoids::size + Body::kStores > 1, kHoldsLong<Body>};
}

// What rows() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error rows_workspace_size(WorkspaceSize& size, long rows, long width) {
  size = {};
  if constexpr (Body::Monoids::size > 0) {
    const auto partition = row_partition<Real, Body>(rows, width);
    if (partition.strategy == partition.multi_block) {
      constexpr size_t words = Words<typename Body::Monoids>::row;
      size.scratch =
          (rows * sizeof(typename Body::Row) + 255) / 256 * 256 + rows * partition.chunks * words * sizeof(Real);
      size.arrivals = rows * sizeof(unsigned);
    }
  }
  return nullptr;
}

// The kernel that holds rows as line N of the table says.
template <class V, class Body, int N> auto* resident_kernel() {
  constexpr ResidentShape as = ResidentShapes<V>::of[N], shorter = ResidentShapes<V>::of[N ? N - 1 : 0];
  static_assert(as.threads == 0 || (N && as.most == as.threads * as.units && as.most <= 2 * shorter.most),
                "rows of a cache number of threads fill more than half of what these can hold");
  return rows_register_resident<V, as.rows, as.units, as.threads, Body>;
}
template <class V, class Body, int N = 0> auto* resident_kernel(int line) {
  if constexpr (ResidentShapes<V>::of[N].most < (kHoldsLong<Body> ? ResidentShapes<V>::longest : ResidentShapes<V>::cramped))
    if (line > N) return resident_kernel<V, Body, N + 1>(line);
  return resident_kernel<V, Body, N>();
}

// The kernel of a partition that is not multi-block; only one is compiled where the width is known.
template <long W, class V, class Body> auto* kernel_of(const RowPartition<V>& partition) {
  constexpr RowPartition<V> fixed = row_partition<V, Body>(kMultiBlockRows + 1, W);
  if constexpr (W == 0)
    return partition.strategy == partition.register_resident ? resident_kernel<V, Body>(partition.shape)
                                                             : rows_warps_per_row<V, Body>;
  else if constexpr (fixed.strategy == fixed.register_resident) return resident_kernel<V, Body, fixed.shape>();
  else return rows_warps_per_row<V, Body>;
}

template <class V, class Body>
Error run_pointwise(const Body& body, long rows, long width, cudaStream_t stream, LaunchMode start) {
  constexpr int kUnits = kBatch<V>;
  constexpr const char* doing = "launching a pointwise kernel";
  const long units = width / LanesOf<V>::count;
  const bool down = rows >= 2 * kUnits && units > 0;
  // a small space is spread over more blocks
  const int threads = rows * units >= 64 * kUnits * kRowThreads ? kRowThreads : kRowThreads / 4;
  const long tiles = units == 0 ? 1 : blocks_of(units, long(kUnits) * threads);
  unsigned grid;
  RF_TRY(grid_of(down ? blocks_of(blocks_of(rows, kUnits) * units, threads) : rows * tiles, grid));
  auto* kernel = down ? pointwise<V, true, Body> : pointwise<V, false, Body>;
  return launch(kernel, grid, threads, 0, stream, start, doing, body, rows, width, tiles);
}

template <long W, class V, class Body>
Error run_rows(const Body& body, long rows, long width, const Workspace& workspace, cudaStream_t stream,
               LaunchMode start) {
  constexpr const char* doing = "launching passes over rows";
  using Row = typename Body::Row;
  const auto partition = row_partition<V, Body>(rows, width);
  unsigned grid;
  if constexpr (W == 0 || W >= kMultiBlockFrom) {
    if (partition.strategy == partition.multi_block) {
      Row* row_states = static_cast<Row*>(workspace.scratch);
      char* after = static_cast<char*>(workspace.scratch) + (rows * sizeof(Row) + 255) / 256 * 256;
      Real* partials = reinterpret_cast<Real*>(after);
      RF_TRY(grid_of(rows * partition.chunks, grid));
      for (int pass = 0; pass < Body::Monoids::size + Body::kStores; pass++)
        RF_TRY(launch(rows_multi_block<V, Body>, grid, kRowThreads, 0, stream, start, doing, body, width,
                      partition.chunks, partition.chunk_width, pass, row_states, partials, workspace.arrivals));
      return nullptr;
    }
  }
  const int units = static_cast<int>(partition.units);
  const int thread_groups = partition.threads > kRowThreads ? 1 : kRowThreads / partition.threads,
            threads = thread_groups * partition.threads;
  RF_TRY(grid_of(blocks_of(rows, thread_groups * partition.rows_of_thread()), grid));
  auto* kernel = kernel_of<W, V, Body>(partition);
  return launch(kernel, grid, threads, 0, stream, start, doing, body, rows, units, partition.threads);
}

// The body's outputs over rows x width. aligned: whether every operand that is read along the width,
// and every full-size output, can be read 16 bytes at a time (see aligned()); of a pointwise body in
// one row, whether their addresses can, whatever the width. W: the width of all calls, 0 if it varies.
template <long W = 0, class Body>
Error rows(const Body& body, long rows, long width, bool aligned, const Workspace& workspace, cudaStream_t stream) {
  if (rows == 0 || (width == 0 && Body::Monoids::size == 0 && !Body::kFinalizes)) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  const LaunchMode start = launch_mode_on(device);
  if constexpr (Body::Monoids::size == 0) {
    aligned = aligned && (rows == 1 || width % 4 == 0);
    return aligned ? run_pointwise<Vec4>(body, rows, width, stream, start)
                   : run_pointwise<Real>(body, rows, width, stream, start);
  } else {
    if constexpr (W % 4 == 0)
      if (aligned && width % 4 == 0) return run_rows<W, Vec4>(body, rows, width, workspace, stream, start);
    return run_rows<W, Real>(body, rows, width, workspace, stream, start);
  }
}

}  // namespace rf
"""
_REFOLD_SOURCE = _REFOLD_HEADERS + _REFOLD_KERNELS

_REFOLD_NAME = "refold_sm_90_456b407b4c28"
_REFOLD_FLAGS = ['-std=c++17', '-O3', '-split-compile=0', '-Xcompiler=-fvisibility=hidden', '-gencode=arch=compute_90a,code=sm_90a']


def _refold_build():
    """The compiled kernels, and None; or None, and why there are none."""
    if not torch.cuda.is_available():
        return None, "PyTorch finds no CUDA device"

    def compiled(folder):
        given = _REFOLD_NAME, _REFOLD_SOURCE, _REFOLD_FLAGS, folder
        nvcc = _refold_pip_nvcc()
        if nvcc is not None:
            return _refold_loaded(_REFOLD_NAME, _refold_compiled_cuda(nvcc, *given))
        nvrtc = _refold_nvrtc()
        if nvrtc is not None:
            return _refold_loaded(_REFOLD_NAME, _refold_compiled_apart(nvrtc, *given))
        from torch.utils.cpp_extension import load_inline

        return load_inline(
            name=_REFOLD_NAME, cpp_sources=[], cuda_sources=[_REFOLD_SOURCE], extra_cuda_cflags=_REFOLD_FLAGS,
            build_directory=folder, no_implicit_headers=True, with_cuda=True,
        )

    file, here = globals().get("__file__"), _refold_here(driver=_refold_drivers())
    return _refold_library(_REFOLD_NAME, _REFOLD_SOURCE, _REFOLD_FLAGS, compiled, file, here)


_refold_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_refold_current = getattr(torch._C, "_cuda_getDevice", None)
_refold_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
if _refold_empty is None:
    _refold_current = type(None)  # no device is the current one: see below
_refold_workspaces = {}
_REFOLD_KEPT = 1 << 25  # bytes: more than so many to work in are let go of after a call


def _refold_empty_on(device):
    """`_refold_empty` for a device that is not the current one."""
    place = torch.device("cuda", device)
    return lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype, device=place)


def _refold_bytes(size, device):
    """Memory for so many bytes, as a forward gets it."""
    empty = _refold_empty if _refold_current() == device else _refold_empty_on(device)
    return empty((size,), (1,), torch.uint8)


def _refold_workspace(size, stream, device):
    """Addresses of memory that the kernels of one stream work in: bytes of any content, and
    arrival counters at zero, which every kernel leaves at zero; then their sizes and the tensors.

    A call that is captured into a CUDA graph gets memory of its own from the graph's pool: the
    graph may be replayed beside other work of the stream.
    """
    if size == (0, 0):
        return 0, 0
    scratch, arrivals = size
    capturing = torch.cuda.is_current_stream_capturing()
    if scratch > _REFOLD_KEPT and not capturing:
        large = _refold_bytes(scratch, device)
        return large.data_ptr(), _refold_workspace((0, arrivals), stream, device)[1], large
    have = None if capturing else _refold_workspaces.get((device, stream))
    if have is not None:
        if scratch <= have[2] and arrivals <= have[3]:
            return have
        scratch, arrivals = max(scratch, have[2]), max(arrivals, have[3])
    place = torch.device("cuda", device)
    held = (
        torch.empty(max(scratch, 1), dtype=torch.uint8, device=place),
        torch.zeros(max(arrivals, 1), dtype=torch.uint8, device=place),
    )
    have = (*(t.data_ptr() for t in held), scratch, arrivals, held)
    if not capturing:
        _refold_workspaces[device, stream] = have
    return have


def _refold_pack(x):
    """A matrix of rows as the tensor cores read it."""
    depth, device = x.shape[-1], x.get_device()
    rows = x.numel() // depth
    packed = _refold_bytes(_refold_kernels.packed_bytes(rows, depth), device)
    _refold_kernels.pack(x, packed, rows, depth, _refold_stream(device), device)
    return packed


def _refold_unsupported_device(device):
    """Why the kernels cannot run on a device, or None."""
    have = torch.cuda.get_device_capability(device)
    if have != (9, 0):
        return f"the device has compute capability {have[0]}.{have[1]}, the kernels are for 9.0"
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured: call the module once before, then capture"
    return None


def _refold_folds_ready(cache):
    """Remember the stream on which folded parameters were computed, and when they are there.

    A CUDA graph that reads them is replayed behind calls that compute them anew, so these are not put
    off. The graph is captured on another stream than the default one: on this, or behind _refold_wait.
    """
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(cache.device))
    cache.event, cache.stream = event, _refold_stream(cache.device)
    cache.pace.always = cache.pace.always or cache.stream != 0


def _refold_look_alone(device):
    """Compare words of the parameters with what they held, beside a call that takes the original."""
    _refold_kernels.look_alone(_refold_stream(device), device)


def _refold_wait(cache, device):
    """Let this stream wait for folded parameters that another one computed."""
    capturing = torch.cuda.is_current_stream_capturing()
    cache.pace.always = cache.pace.always or capturing
    if not capturing:
        stream = torch.cuda.current_stream(device)
        stream.wait_event(cache.event)
        for value in cache.values:
            value.record_stream(stream)


def _refold_tf32_allowed():
    """Whether PyTorch may use TF32 in products of float32."""
    try:
        return torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the flag was set by its newer name
        return torch.backends.cuda.matmul.fp32_precision == "tf32"

# --- The runtime. ---------------------------------------------------------------------------------
import glob
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
import torch
import ctypes
import re
import shlex
from typing import Any
import hashlib
import importlib.machinery
import json
from collections.abc import Mapping, Sequence
import contextlib
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
import enum
import math
import types
import functools
import dis
from collections.abc import Iterable, Iterator
from collections.abc import Iterable, Iterator, Mapping
import operator
from collections.abc import Collection, Iterator, Sequence
from types import CellType, FunctionType
import logging
from collections.abc import Callable, Sequence
from collections.abc import Callable
import weakref
from collections import OrderedDict


# CUDA's compiler from pip's wheels, where there is no other.


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


# CUDA where there is no nvcc: NVRTC, which comes with PyTorch, compiles what runs on a GPU, and a
# C++ compiler the host's part, from the same source.
#
# In the host's part kernels and what they call are declared alone. Whatever kernel it takes the
# address of is undefined in its assembly: these are the kernels that NVRTC is asked for. A row of a
# table stands at each address, from which the driver's handle is had (rf_handle, see device.cuh).


# what CUDA's headers take from those of its compilers, which PyTorch does not bring
_REFOLD_NO_HEADERS = {
    "crt/host_config.h": "",
    "crt/host_defines.h": """#pragma once
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __forceinline__ inline
#define __host__
#define __device__
#define __global__
#define __shared__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __specialization_static
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __location__(a)
#define __annotate__(a)
#define CUDARTAPI
#define CUDARTAPI_CDECL
""",
    "cuda_fp16.h": "struct __half;\nstruct __half2;\n",
}
# what NVRTC has no headers of: names that the host's templates have
_REFOLD_NAMES = {
    "cuda_runtime.h": """#pragma once
typedef struct CUstream_st* cudaStream_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
""",
    "cstdint": """#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#define INT32_MAX 2147483647
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 18446744073709551615ul
#define offsetof(type, member) ((unsigned long)&((type*)0)->member)
""",
    "type_traits": """#pragma once
namespace std {
template <bool, class T, class> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T, class U> struct is_same { static constexpr bool value = false; };
template <class T> struct is_same<T, T> { static constexpr bool value = true; };
template <class T> struct is_void : is_same<const volatile T, const volatile void> {};
}
""",
    "atomic": "#pragma once\nnamespace std { template <class T> struct atomic { atomic(T); }; }\n",
    **dict.fromkeys(("cstdarg", "cstdio", "mutex", "stdint.h", "stdlib.h"), ""),
}
# after the rows: their handles. Calls hold a lock (launch_on).
_REFOLD_HANDLES = r"""
typedef int Load(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
typedef int Find(void**, void*, const char*);
static void* libraries[2];
extern "C" const char* rf_handle(void* given, int code, void** handle) {
  static thread_local char text[128];
  Row& row = *static_cast<Row*>(given);
  int status = 0;
  if (row.handles[code] == nullptr) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return "there is no driver";
    auto* load = reinterpret_cast<Load*>(dlsym(driver, "cuLibraryLoadData"));
    auto* find = reinterpret_cast<Find*>(dlsym(driver, "cuLibraryGetKernel"));
    if (load == nullptr || find == nullptr) return "the driver must be for CUDA 12.0 or later";
    const char* image = code ? rf_code1 : rf_code0;
    if (*image == 0) return "the kernels were compiled for another device";
    void*& library = libraries[code];
    if (library == nullptr)
      status = load(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status == 0) status = find(&row.handles[code], library, row.name);
  }
  *handle = row.handles[code];
  if (status == 0) return nullptr;
  std::snprintf(text, sizeof text, "loading the kernels of NVRTC: CUresult %d", status);
  return text;
}
"""
# comments, strings, and what the end of a function's head and body is told by
_REFOLD_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'|::|[(){};:]|[\w>]\s*\{""", re.S
)


def _refold_nvrtc() -> tuple[str, str, str] | None:
    """NVRTC's library, the folder of CUDA's headers and CUDA's runtime to link with, of PyTorch's
    release where that is known. None where there are none, or nvcc is at hand."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or _refold_other_nvcc() is not None:
        return None
    release = (torch.version.cuda or "[0-9]*").partition(".")[0]
    names = f"lib/libnvrtc.so.{release}", "include/cuda_runtime.h", "lib/libcudart_static.a"
    for root in spec.submodule_search_locations or ():
        found = [sorted(glob.glob(f"{root}/*/{name}")) for name in names]
        found[2] = found[2] or sorted(glob.glob(f"{root}/*/lib/libcudart.so.{release}"))
        if all(found):
            library, header, runtime = (paths[-1] for paths in found)
            return library, os.path.dirname(header), runtime
    return None


def _refold_declared(source: str) -> str:
    """The source with what runs on a GPU declared alone, but for constants."""
    parts, at = [], 0
    for found in re.finditer(r"\b(?:RF_FN|__global__)\b", source):
        line = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
        if found.start() < at or re.search(r"//|\bconstexpr\b|^#define $", line):
            continue
        begin, end = _refold_body(source, found.end())
        parts += [source[at:begin], ";" if end > begin else ""]
        at = end
    return "".join(parts) + source[at:]


def _refold_body(source: str, start: int) -> tuple[int, int]:
    """Where a function's body, or a constructor's list before it, begins and ends; the same twice
    where there is none. start: in its head."""
    parentheses = braces = 0
    begin, in_list = None, False
    for token in _REFOLD_TOKENS.finditer(source, start):
        text = token[0]
        if text in "()":
            parentheses += 1 if text == "(" else -1
        elif text == "}":
            braces -= 1
            if not braces and not in_list:
                return begin or 0, token.end()
        elif text[-1] == "{" and text[0] not in "/\"'":
            begin = token.end() - 1 if begin is None else begin
            # in the list a name's braces hold what a member is made from
            in_list = in_list and (braces > 0 or len(text) > 1)
            braces += 1
        elif not parentheses and not braces and begin is None and text in ";:":
            if text == ";":
                return token.start(), token.start()
            begin, in_list = token.start(), True
    raise RuntimeError("error: a function of the kernels' source has no end")


def _refold_compiled_apart(
    found: tuple[str, str, str], name: str, source: str, flags: Sequence[str], folder: str
) -> str:
    """Compile CUDA for this Python into a folder; the path of the library. found: see
    `_refold_nvrtc`. flags: nvcc's, of which the machine code's are heeded. Raises RuntimeError with
    what was said."""
    library, include, runtime = found
    code = re.findall(r",code=(\w+)", " ".join(flags))
    own = next(c for c in code if c.startswith("sm_"))
    number = re.sub(r"\D", "", own) + "0"
    defined = [f"-D__CUDA_ARCH_LIST__={number}", f"-DTORCH_EXTENSION_NAME={name}"]
    headers = [f"-isystem{h}" for h in (include, sysconfig.get_path("include"))]
    files = {**_REFOLD_NO_HEADERS, "host.cpp": _refold_declared(source)}
    os.makedirs(os.path.join(folder, "crt"), exist_ok=True)
    for file, text in files.items():
        with open(os.path.join(folder, file), "w") as opened:
            opened.write(text)
    shared = ["-std=c++17", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w"]
    told = [*shared, "-DRF_APART", *defined, "-I.", *headers]
    _refold_by_compiler([*told, "-S", "host.cpp", "-o", "host.s"], folder)
    with open(os.path.join(folder, "host.s")) as opened:
        kernels = _refold_undefined(opened.read())
    options = [f"--gpu-architecture={own}", "-std=c++17", "-default-device", f"-I{include}"]
    options += [*defined, "--disable-warnings"]
    images = _refold_by_nvrtc(library, source, options, kernels)
    rows = ['#include <dlfcn.h>\n#include <cstdio>\nextern "C" {']
    rows.append("struct Row { const char* name; void* handles[2]; };")
    for i, image in enumerate(images if any("compute_" in c for c in code) else (images[0], b"")):
        with open(os.path.join(folder, f"code{i}"), "wb") as binary:
            binary.write(image + b"\0")
        lines = [".pushsection .rodata", ".balign 64", f".hidden rf_code{i}", f".globl rf_code{i}"]
        lines += [f"rf_code{i}:", f'.incbin \\"code{i}\\"', ".popsection"]
        rows.append('asm("' + "\\n".join(lines) + '");')
        rows.append(f"extern const char rf_code{i}[];")
    rows += [f'Row {kernel} = {{"{kernel}", {{}}}};' for kernel in kernels]
    with open(os.path.join(folder, "rows.cpp"), "w") as opened:
        opened.write("\n".join([*rows, "}", _REFOLD_HANDLES]))
    linked = ["host.s", "rows.cpp", runtime, "-ldl", "-lpthread", "-lrt"]
    if not runtime.endswith(".a"):  # of CUDA 12
        linked += ["-Xlinker", "-rpath", "-Xlinker", os.path.dirname(runtime)]
    _refold_by_compiler([*shared, "-shared", *linked, "-o", f"{name}.so"], folder)
    shutil.rmtree(os.path.join(folder, "crt"))
    return os.path.join(folder, f"{name}.so")


def _refold_by_compiler(arguments: Sequence[str], folder: str) -> None:
    """Run the C++ compiler in a folder. Raises RuntimeError."""
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if not compiler or shutil.which(compiler[0]) is None:
        raise RuntimeError(f"error: there is no {' '.join(compiler) or 'C++ compiler'}")
    done = subprocess.run(
        [*compiler, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def _refold_undefined(assembly: str) -> list[str]:
    """Our functions that assembly refers to and lacks: the kernels, by their mangled names."""
    used = set(re.findall(r"(?<![\w.$])_ZN2rf\w+(?![\w.$])", assembly))
    held = re.findall(r"(?m)^(_ZN2rf\w+):|\.(?:local|l?comm)\s+(_ZN2rf\w+)", assembly)
    return sorted(used.difference(*held))


def _refold_by_nvrtc(
    library: str, source: str, options: Sequence[str], kernels: Sequence[str]
) -> tuple[bytes, bytes]:
    """The machine code and the PTX of kernels. Raises RuntimeError with what NVRTC said."""
    for part in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so.*")):
        ctypes.CDLL(part, ctypes.RTLD_GLOBAL)  # NVRTC looks for it by its name alone
    nvrtc = ctypes.CDLL(library)
    program = ctypes.c_void_p()

    def strings(given: Sequence[str]) -> Any:
        return (ctypes.c_char_p * len(given))(*(text.encode() for text in given))

    def had(what: str) -> bytes:
        size = ctypes.c_size_t()
        asked(f"Get{what}Size", ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        asked(f"Get{what}", text)
        return text.raw

    def asked(what: str, *arguments: object) -> None:
        status = getattr(nvrtc, f"nvrtc{what}")(program, *arguments)
        if status:
            log = had("ProgramLog").rstrip(b"\0") if what == "CompileProgram" else b""
            raise RuntimeError(log.decode(errors="replace") or f"error: nvrtc{what}: {status}")

    names, texts = strings(list(_REFOLD_NAMES)), strings(list(_REFOLD_NAMES.values()))
    given = source.encode(), b"kernels.cu", len(names), texts, names
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), *given):
        raise RuntimeError("error: NVRTC takes no source")
    try:
        spelt = {kernel: _refold_spelt(kernel).encode() for kernel in kernels}
        for expression in spelt.values():
            asked("AddNameExpression", expression)
        asked("CompileProgram", len(options), strings(options))
        for kernel, expression in spelt.items():
            lowered = ctypes.c_char_p()
            asked("GetLoweredName", expression, ctypes.byref(lowered))
            if lowered.value != kernel.encode():
                raise RuntimeError(f"error: NVRTC names {kernel} {lowered.value!r}")
        return had("CUBIN"), had("PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _refold_spelt(mangled: str) -> str:
    """A kernel's mangled name as C++ has it, without what it returns and takes."""
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_char_p
    whole: str = library.__cxa_demangle(mangled.encode(), None, None, None).decode()
    depth, end = 0, len(whole)
    while end and (depth or end == len(whole)):
        end -= 1
        depth += {")": 1, "(": -1}.get(whole[end], 0)
    return whole[:end].removeprefix("void ")


# Kernels that `refold build` compiled ahead: in a folder beside the file, which has their name.
#
# built.json lists the libraries: of each its digest and what it needs. One that was changed, or that
# is for another Python, PyTorch, processor or driver, is not loaded.


_REFOLD_LIST = "built.json"


def _refold_here(**more: Sequence[str]) -> dict[str, Sequence[str]]:
    """What libraries may need, and of each what there is here, the best first."""
    python = importlib.machinery.EXTENSION_SUFFIXES[0].strip(".").removesuffix(".so")
    return {"Python": [python], **more}


def _refold_torch_release() -> str:
    """Whose functions kernels for the CPU call: those of another release may be others."""
    return ".".join(torch.__version__.split(".")[:2])


def _refold_drivers() -> list[str]:
    """The releases of CUDA that the driver runs. A library has CUDA's runtime in it, which asks for
    a driver of its release or a later one."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return []
    return [f"CUDA {release}" for release in range(version.value // 1000, 0, -1)]


def _refold_digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _refold_built(name: str, source: str, file: str | None, here: Mapping[str, Any]) -> Any:
    """The best library that fits; as text, why none is loaded; None where none was built.

    file: the path of the emitted file, if it lies in one. here: see `_refold_here`.
    """
    folder = os.path.join(os.path.dirname(os.path.abspath(file)), name) if file else ""
    if not os.path.isdir(folder):
        return None
    try:
        with open(os.path.join(folder, _REFOLD_LIST)) as listed:
            made = json.load(listed)
        rows = [(row["file"], row["sha256"], dict(row["needs"])) for row in made["libraries"]]
        if made["source"] != _refold_digest(source.encode()):
            return f"the kernels in the file are others than those that were built in {folder}"
        lacking = [[n for n in needs if needs[n] not in here.get(n, ())] for _, _, needs in rows]
        if not all(lacking):
            fitting = [row for row, lacks in zip(rows, lacking, strict=True) if not lacks]
            best = min(fitting, key=lambda row: [here[n].index(row[2][n]) for n in sorted(row[2])])
            path, digest = os.path.join(folder, os.path.basename(best[0])), best[1]
            with open(path, "rb") as library:
                whole = _refold_digest(library.read()) == digest
            return _refold_loaded(name, path) if whole else f"{path} was changed after it was built"
        _, _, needs = rows[lacking.index(min(lacking, key=len))]
        wanted = " and ".join(
            f"{n} {needs[n]} (here: {', '.join(here.get(n, ())) or 'none'})"
            for n in min(lacking, key=len)
        )
        return f"the kernels in {folder} were built for {wanted}"
    except OSError as error:
        what = os.path.basename(error.filename or folder)
        return f"the kernels built in {folder} are not all there ({what}: {error.strerror})"
    except ImportError as error:
        return f"the kernels built in {folder} cannot be loaded ({str(error).splitlines()[0]})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the kernels built in {folder} are not all there ({_REFOLD_LIST} is cut or changed)"


def _refold_loaded(name: str, path: str) -> Any:
    """The module in a library. Raises ImportError, or OSError."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no library")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Compiled kernels: found where they were compiled before, else compiled, by one process at a time.
#
# A library stands in a folder of its own, with a stamp: the digest of its bytes. One that is cut
# short, by a full disk or a process that was killed, would end every process that loads it; without
# its true stamp it is compiled anew. A folder gets its name when all of it is there.


_REFOLD_BYTES = 4 << 30  # of libraries that are kept; those that were not used for longest go first
_REFOLD_STAMP = "stamp"


def _refold_library(
    name: str,
    source: str,
    made_for: Any,
    compiled: Callable[[str], Any],
    file: str | None = None,
    here: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Any, str | None]:
    """The compiled module, and None; or None, and why there is none.

    name: the module's. made_for: all but the source that its machine code depends on. compiled:
    compiles and loads it in a folder. file, here: of what may have been built beside a file, see
    `_refold_built`.
    """
    if os.environ.get("REFOLD_DISABLE", "0") not in ("", "0"):
        return None, "REFOLD_DISABLE is set"
    built = _refold_built(name, source, file, here or _refold_here())
    if built is not None and not isinstance(built, str):
        _refold_cache_log.info("refold: %s was built ahead: found beside %s", name, file)
        return built, None
    module, problem = _refold_kept(name, (source, made_for), compiled)
    if built is None:
        return module, problem
    if problem is None:
        _refold_log.warning("refold: %s; others were compiled, or found compiled", built)
    return module, problem and f"{built}; {problem}"


def _refold_kept(name: str, made_of: Any, compiled: Callable[[str], Any]) -> tuple[Any, str | None]:
    """The same, from the cache, or compiled into it."""
    versions = torch.__version__, _refold_here(), os.environ.get("CXX")
    key = _refold_digest(repr((*versions, made_of)).encode())[:12]
    try:
        roots = _refold_roots()
        for root in roots:
            found = _refold_stamped(os.path.join(root, f"{name}_{key}"))
            if found is not None:
                _refold_cache_log.info("refold: %s: found in %s", name, root)
                return found, None
        root = next((r for r in roots if os.access(r, os.W_OK | os.X_OK)), roots[-1])
        folder = os.path.join(root, f"{name}_{key}")
        with _refold_alone(f"{folder}.lock"):
            begun = time.perf_counter()
            found = _refold_stamped(folder)
            if found is not None:
                _refold_cache_log.info("refold: %s: compiled by another process", name)
                return found, None
            found = _refold_compiled(folder, compiled)
            spent = time.perf_counter() - begun
            _refold_cache_log.info("refold: %s: compiled in %.1f s into %s", name, spent, root)
            return found, None
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = (x for x in lines if "error" in x and not x.startswith("collect2"))
        line = next(said, lines[0])  # collect2 only says that the linker, which said why, failed
        return None, f"the kernels could not be compiled ({line})"


def _refold_home() -> str | None:
    """The folder of all that is kept from one process to the next; REFOLD_CACHE names another.
    None where the user has no home, as in a container under a number that no user has."""
    home = os.path.expanduser("~")
    own = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    base = os.environ.get("XDG_CACHE_HOME") or own
    return os.environ.get("REFOLD_CACHE") or (os.path.join(base, "refold") if base else None)


def _refold_roots() -> list[str]:
    """Where libraries may lie, those that cannot be written to among them: TORCH_EXTENSIONS_DIR, if
    it is set, else the folder above; then one of this user's own among temporary files."""
    home = _refold_home()
    asked = os.environ.get("TORCH_EXTENSIONS_DIR") or (home and os.path.join(home, "libraries"))
    user = os.getuid() if hasattr(os, "getuid") else 0
    own = os.path.join(tempfile.gettempdir(), f"refold_{user}")
    found = []
    for root, mode in ((asked, 0o777), (own, 0o700)):
        if root is None:
            continue
        with contextlib.suppress(OSError):
            os.makedirs(root, mode, exist_ok=True)
        if os.path.isdir(root) and (root == asked or _refold_is_own(root, user)):
            found.append(root)
        if found and os.access(found[-1], os.W_OK | os.X_OK):
            return found
    return [*found, tempfile.mkdtemp(prefix="refold_")]


def _refold_is_own(folder: str, user: int) -> bool:
    """Whether nobody else can write to a folder where everybody can make one."""
    held = os.lstat(folder)
    return stat.S_ISDIR(held.st_mode) and held.st_uid == user and not held.st_mode & 0o022


def _refold_stamped(folder: str) -> Any:
    """The module that lies in a folder, if it is whole and can be loaded; else None."""
    stamp = os.path.join(folder, _REFOLD_STAMP)
    try:
        with open(stamp) as file:
            digest = file.read()
        (library,) = (n for n in os.listdir(folder) if n.endswith(".so"))
        path = os.path.join(folder, library)
        with open(path, "rb") as library_file:
            if _refold_digest(library_file.read()) != digest:
                return None
    except (OSError, ValueError):
        return None
    try:
        module = _refold_loaded(library.removesuffix(".so"), path)
    except ImportError:  # made for another build of PyTorch
        return None
    with contextlib.suppress(OSError):
        os.utime(stamp)
    return module


def _refold_compiled(folder: str, compiled: Callable[[str], Any]) -> Any:
    """Compile into a folder that gets its name when all is there."""
    # others who share the cache may read it, as far as the umask lets them: no `mkdtemp`
    made = f"{folder}.{secrets.token_hex(4)}"
    os.mkdir(made)
    try:
        with _refold_ninja_on_path():
            module = compiled(made)
        library = next((n for n in os.listdir(made) if n.endswith(".so")), "a library")
        for other in list(os.scandir(made)):
            if other.name != library and not other.is_dir():
                os.remove(other.path)
        with open(os.path.join(made, library), "rb") as library_file:
            digest = _refold_digest(library_file.read())
        with open(os.path.join(made, _REFOLD_STAMP), "w") as file:
            file.write(digest)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was as fast
            os.rename(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    with contextlib.suppress(OSError):
        _refold_forget(os.path.dirname(folder), _REFOLD_BYTES, folder)
    return module


def _refold_compiled_cpp(
    name: str, source: str, flags: Sequence[str], folder: str, parts: int = 1
) -> str:
    """Compile C++ for this Python and PyTorch into a folder; the path of the library. Raises
    RuntimeError with what the compiler said.

    parts: in how many parts the source may be compiled side by side; RF_UNIT names one in it.
    Where there is one processor, all is compiled at once: it is less work.
    """
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if not compiler or shutil.which(compiler[0]) is None:
        raise RuntimeError(f"there is no {' '.join(compiler) or 'C++ compiler'}")
    own = os.path.dirname(torch.__file__)
    text, made = (os.path.join(folder, f"{name}{end}") for end in (".cpp", ".so"))
    with open(text, "w") as file:
        file.write(source)
    headers = (os.path.join(own, "include"), sysconfig.get_path("include"))
    told = [f"-DTORCH_EXTENSION_NAME={name}", *flags, "-fPIC", *(f"-isystem{h}" for h in headers)]
    alone = parts == 1 or len(os.sched_getaffinity(0)) < parts
    defined = [()] if alone else [(f"-DRF_UNIT={i}",) for i in range(parts)]
    objects = [os.path.join(folder, f"{name}_{i}.o") for i in range(len(defined))]
    _refold_ran(
        [
            [*compiler, *told, *part, "-c", text, "-o", made_of]
            for part, made_of in zip(defined, objects, strict=True)
        ]
    )
    linked = ["-shared", f"-L{os.path.join(own, 'lib')}", "-ltorch_cpu", "-lc10"]
    _refold_ran([[*compiler, *objects, *linked, "-o", made]])
    return made


def _refold_ran(commands: Sequence[Sequence[str]]) -> None:
    """Runs commands side by side to their ends. Raises RuntimeError with what the first said that
    failed."""
    with contextlib.ExitStack() as stack:
        running = []
        for command in commands:
            said = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            running.append((stack.enter_context(process), said))
        for process, said in running:
            if process.wait():
                said.seek(0)
                raise RuntimeError(said.read())


@contextlib.contextmanager
def _refold_ninja_on_path() -> Iterator[None]:
    """PyTorch calls ninja by its name. pip installs it beside Python, in a folder that PATH lacks
    where Python is started by its own path."""
    beside = os.path.dirname(sys.executable)
    before = os.environ.get("PATH")
    if shutil.which("ninja") is not None or shutil.which("ninja", path=beside) is None:
        yield
        return
    os.environ["PATH"] = os.pathsep.join(filter(None, (before, beside)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def _refold_forget(root: str, most: int, but: str = "") -> int:
    """Remove libraries, those that were not used for longest first, until the others take at most
    so many bytes, and what processes left that were killed; says how many bytes went. The folder
    may hold what others have compiled: theirs has no stamp."""
    kept, gone = [], 0
    for entry in os.scandir(root):
        if not entry.name.startswith("refold_") or not entry.is_dir() or entry.path == but:
            continue
        stamp = os.path.join(entry.path, _REFOLD_STAMP)
        whole, unfinished = os.path.isfile(stamp), "." in entry.name
        if not whole and not (unfinished and time.time() - entry.stat().st_mtime > 86400):
            continue
        size = sum(f.stat().st_size for f in os.scandir(entry.path) if f.is_file())
        kept.append((os.stat(stamp).st_mtime if whole else 0.0, size, entry.path))
    total = sum(size for _, size, _ in kept)
    for used, size, path in sorted(kept):
        if used and total - gone <= most:
            break
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.exists(path):  # another user's may have stayed
            gone += size
    return gone


@contextlib.contextmanager
def _refold_alone(lock: str) -> Iterator[None]:
    """One process at a time; one that is killed holds the lock no more."""
    try:
        import fcntl

        held = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    except (ImportError, OSError):
        yield  # there are no such locks here
        return
    try:
        with contextlib.suppress(OSError):  # none on this file system
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
        with contextlib.suppress(OSError):
            os.remove(lock)


# What is compared of attributes and globals: plain values, lists, functions, objects, arrays.


_REFOLD_HOMES = ("torch", "builtins", "functools")
_REFOLD_NUMBERS = (enum.Enum, bool, int, float, complex, str, bytes, range, slice, re.Pattern)
# classes by their names: to import them would take names from the model's own file
_REFOLD_TEXTS = (
    "fractions.Fraction",
    "decimal.Decimal",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "operator.attrgetter",
    "operator.itemgetter",
    "operator.methodcaller",
)
# of Python's own libraries: where classes are whose objects hold what they are given
_REFOLD_OPEN = ("types", "collections", "argparse", "_thread")
_REFOLD_ORDERED = "collections.OrderedDict"
_REFOLD_DEEPEST = 12
_REFOLD_VALUES = 4096  # values of a graph of objects that are looked at
_REFOLD_LARGEST = 1 << 16  # bytes of an array that are compared before each call
_REFOLD_USUAL = frozenset(vars(torch.nn.Module()))


def _refold_is_plain(value: Any) -> bool:
    """True if the value's text is the value; of numpy's and enums' classes it is not."""
    if type(value) is tuple:
        return all(map(_refold_is_plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (bool, int, str, type(None))


def _refold_code(code: types.CodeType) -> list[Any]:
    """What code does, as plain values."""
    constants = [_refold_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return [code.co_code.hex(), code.co_names, *constants]


def _refold_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not bound yet


def _refold_home_of(kind: Any) -> str:
    return str(getattr(kind, "__module__", None)).split(".")[0]


def _refold_fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object that holds values, in its dict or in slots; None of what is no such
    object: tensors, modules, classes, and objects of Python's and PyTorch's own."""
    kind = type(value)
    home = _refold_home_of(kind)
    closed = home in sys.stdlib_module_names and home not in _REFOLD_OPEN
    others = torch.nn.Module, torch.Tensor, type, types.ModuleType
    if closed or home in ("torch", "numpy", "builtins") or isinstance(value, others):
        return None
    slots = {
        name: member
        for cls in kind.__mro__
        for name, member in vars(cls).items()
        if isinstance(member, types.MemberDescriptorType)
    }
    own = getattr(value, "__dict__", None)
    if not slots and type(own) is not dict:
        return None
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | own if type(own) is dict else found


def _refold_places(model: torch.nn.Module, varied: Any = ()) -> dict[Any, Any]:
    """The path of each module inside a model, by the identity of the dict that has its children: a
    module and its twin share it. Under "varied" the keys of the numbers that vary, by the identity
    of what holds them.

    varied: their places, as `_REFOLD_VARIED` has them."""
    places: dict[Any, Any] = {id(vars(m)["_modules"]): path for path, m in model.named_modules()}
    inside: dict[int, set[Any]] = {}
    for path, name, *keys in varied:
        holder = _refold_holder(_refold_part(model, path), name, keys)
        if holder is not None:
            inside.setdefault(id(holder), set()).add(keys[-1])
    return places | {"varied": inside} if inside else places


def _refold_part(model: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        model = None if model is None else vars(model)["_modules"].get(name)
    return model


def _refold_holder(module: Any, name: str, keys: Any) -> Any:
    """The dict, list or object in what an attribute holds that the last of these keys is one of, or
    None."""
    held = None if module is None else vars(module).get(name)
    for i, key in enumerate(keys):
        items = _refold_items(held)
        if items is None or key not in items:
            return None
        if i + 1 < len(keys):
            held = items[key]
    return held


def _refold_items(value: Any) -> dict[Any, Any] | None:
    """The entries of a dict or a list, and the fields of an object that gives them as it holds
    them; None of all else."""
    if type(value) is dict:
        return value
    if type(value) is list:
        return dict(enumerate(value))
    ways = ("__getattribute__", "__getattr__")
    own = (vars(c).get(way) for c in type(value).__mro__ for way in ways)
    return None if any(isinstance(f, types.FunctionType) for f in own) else _refold_fields(value)


class _RefoldVaries:
    """Stands for a number that varies where what holds it is compared."""


def _refold_without(value: Any, items: dict[Any, Any], places: Any) -> dict[Any, Any]:
    """Entries of a container, those that vary without their values."""
    keys = places["varied"].get(id(value)) if places and "varied" in places else None
    return {k: _RefoldVaries if k in keys else v for k, v in items.items()} if keys else items


def _refold_place(value: Any, places: Any) -> str | None:
    """The path of a module that a model has at a place of its own, or None."""
    known = places and isinstance(value, torch.nn.Module)
    return places.get(id(vars(value).get("_modules"))) if known else None


def _refold_is_function(value: Any) -> bool:
    """Is it a function in Python, and not one of PyTorch's that holds nothing?"""
    theirs = isinstance(value, types.FunctionType)
    return theirs and (bool(value.__closure__) or _refold_home_of(value) not in _REFOLD_HOMES)


def _refold_counted(value: Any, names: Any) -> dict[str, Any] | None:
    """The fields of an object that count: of one that finds its fields in ways of its own, all. So
    of PyTorch's modules that a model holds in no place of theirs."""
    fields, kind = _refold_fields(value), type(value)
    if isinstance(value, torch.nn.Module):
        every = names is None or _refold_home_of(kind) == "torch"
        held = {k: v for k, v in vars(value).items() if not k.startswith("_refold")}
        return {k: v for k, v in held.items() if every or k in names or k in _REFOLD_USUAL}
    own = any("__getattribute__" in vars(c) for c in kind.__mro__[:-1])
    if fields is None or names is None or own or hasattr(kind, "__getattr__"):
        return fields
    return {k: v for k, v in fields.items() if k in names}


def _refold_of_numpy(value: Any, name: str) -> bool:
    """Is it of a class of numpy's? Whoever has one has imported numpy, which may not be there."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


def _refold_is_number(value: Any) -> bool:
    known = isinstance(value, _REFOLD_NUMBERS) or _refold_named(value) in _REFOLD_TEXTS
    return known or _refold_of_numpy(value, "generic")


def _refold_name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _refold_named(value: Any) -> str:
    return _refold_name_of(type(value))


def _refold_is_variable(value: Any) -> bool:
    return _refold_named(value) == "_contextvars.ContextVar"


def _refold_is_deque(value: Any) -> bool:
    return _refold_named(value) == "collections.deque"


def _refold_own(value: Any) -> Any:
    """A copy of a list, dict, set or deque by its built-in class: a class made of one may make what
    it gives anew each time."""
    kinds = (c for c in type(value).__mro__ if _refold_name_of(c) == _REFOLD_ORDERED)
    ordered: Any = next(kinds, None)
    if ordered is not None and type(value) is not ordered:
        return ordered((k, dict.__getitem__(value, k)) for k in ordered.__iter__(value))
    plain: tuple[Any, ...] = (dict, list, set) if ordered is None else ()
    return next((k for k in plain if isinstance(value, k)), type(value)).copy(value)


def _refold_data(value: Any) -> bytes | None:
    """What an array of numbers holds, where it is not large."""
    if _refold_of_numpy(value, "ndarray"):
        small = value.nbytes <= _REFOLD_LARGEST and not value.dtype.hasobject
        return value.tobytes() if small else None
    small = (isinstance(value, bytearray) or _refold_named(value) == "array.array") and len(
        value
    ) <= _REFOLD_LARGEST // 8
    return bytes(value) if small else None


def _refold_stands_for(value: Any, names: Any) -> list[Any]:
    """What is called by the name of another function, as static methods and what
    `functools.update_wrapper` has changed: that function, and the fields beside it."""
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, type) or "__wrapped__" not in getattr(value, "__dict__", {}):
        return []
    fields = {**vars(value), **(_refold_counted(value, names) or {})}
    return [part for item in fields.items() for part in item]


def _refold_setting(
    value: Any, depth: int = 0, names: Any = None, known: Any = None, places: Any = None
) -> Any:
    """A plain value itself; of a list, dict, set, array, function or object that holds values a
    text that differs where one of them does; None of all else, which nothing can be said of.

    names: of an object the fields that count; all, where there are none. known: what was looked at
    by its id, and its text: many may hold the same, or themselves. places: of the modules that the
    model has at a place of their own, which says all of them (`_refold_places`).
    """
    if _refold_is_plain(value):
        return value
    if value is _RefoldVaries:
        return "a number that varies"
    place = _refold_place(value, places)
    if place is not None:
        return f"the module {place}"
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)][1]
    kind, inner = type(value), None
    named = value if callable(value) and hasattr(value, "__qualname__") else kind
    home = _refold_home_of(named)
    # a file's own module has another name once the file is written out
    name = (f"{home}." if home in _REFOLD_HOMES else "") + str(named.__qualname__)
    if isinstance(value, tuple):
        inner = list(value)
    elif isinstance(value, list) or _refold_is_deque(value):
        own = _refold_own(value)
        inner = [*_refold_without(value, dict(enumerate(own)), places).values()]
    elif isinstance(value, (dict, types.MappingProxyType)):
        own = _refold_without(value, _refold_own(value), places)
        inner = [part for item in own.items() for part in item]
    elif isinstance(value, (set, frozenset)):
        inner = sorted(value, key=repr)
    elif named is value:
        inner, code = [], getattr(value, "__code__", None)
        # others of that name may do something else: after a reload, or around it (functools.wraps)
        if isinstance(code, types.CodeType) and (home not in _REFOLD_HOMES or "<" in name):
            inner = [*_refold_code(code), value.__defaults__, value.__kwdefaults__]
            inner += [_refold_content(cell) for cell in value.__closure__ or ()]
            inner += [vars(value)] if vars(value) else []
        inner += [value.__self__] if isinstance(value, types.MethodType) else []
        inner += _refold_stands_for(value, names) if code is None else []
    elif name == "functools.partial":
        inner = [value.func, value.args, value.keywords]
    elif _refold_is_number(value) or name in ("torch.dtype", "torch.device"):
        return f"{name} {value!r}"
    elif (data := _refold_data(value)) is not None:
        form = getattr(value, "dtype", getattr(value, "typecode", "")), getattr(value, "shape", "")
        inner = [*map(str, form), data.hex()]
    elif _refold_is_variable(value):
        inner = [value.get(None)]
    elif (fields := _refold_counted(value, names)) is not None:
        inner = [part for item in _refold_without(value, fields, places).items() for part in item]
    if inner is None:
        return None
    deeper = depth < _REFOLD_DEEPEST and len(known) < _REFOLD_VALUES
    known[id(value)] = value, f"{name} in itself"
    parts = [_refold_setting(v, depth + 1, names, known, places) if deeper else None for v in inner]
    pairs = zip(parts, inner, strict=True)
    said = ("?" if p is None and v is not None else repr(p) for p, v in pairs)
    text = f"{name}({', '.join(said)})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    known[id(value)] = value, text if len(text) <= 100 else f"{name} {digest}"
    return known[id(value)][1]


# What attributes and globals hold, and whether it is what it was: values, classes and order.


def _refold_equal(held: Any, then: Any) -> bool:
    """Does something hold what it held then?"""
    if isinstance(held, types.CellType):
        return _refold_content(held) is then
    if isinstance(held, (types.FunctionType, _RefoldSeen)):
        held = held if isinstance(held, _RefoldSeen) else _RefoldSeen(held)
        return bool(held == then)
    return _refold_alike(held, then)


def _refold_alike(held: Any, then: Any) -> bool:
    """Are two values the same to whoever computes with them? Python takes 1, True and 1.0 for
    equal, 0.0 and -0.0, and dicts in any order. Of others than plain values and what is made of
    them: are they one?"""
    if held is then:
        return True
    both = (dict, list, set)
    kind = next((k for k in both if isinstance(held, k) and isinstance(then, k)), None)
    if kind is None and type(held) is not type(then):
        return False
    if kind is not None:
        held, then = _refold_own(held), _refold_own(then)
        if kind is set:
            kinds = [sorted(map(_refold_named, s)) for s in (held, then)]
            return bool(held == then) and kinds[0] == kinds[1]
        if kind is dict:
            held, then = list(held.items()), list(then.items())
    elif _refold_is_number(held) or type(held) is torch.device:  # their texts say all
        plain = type(held) in (int, str, bytes)
        return bool(held == then) if plain else repr(held) == repr(then)
    elif not isinstance(held, tuple):
        return type(held) is types.CodeType and bool(held == then)
    return len(held) == len(then) and all(map(_refold_alike, held, then))


class _RefoldSeen:
    """Compares what something holds now, of what is no list, dict or set, or of a part of one."""

    def __init__(self, value: Any, names: Any = None, places: Any = None) -> None:
        """places: those in which numbers of this container vary, which are left out; or None."""
        self.value, self.names, self.places = value, names, places

    def now(self) -> Any:
        value = self.value
        if self.places is not None:
            if isinstance(value, (list, dict)):
                own = _refold_own(value)
                items = own if isinstance(own, dict) else dict(enumerate(own))
            else:
                items = _refold_counted(value, self.names) or {}
            return _refold_without(value, items, self.places)
        if _refold_is_variable(value):
            return value.get(None)
        if isinstance(value, types.FunctionType):
            return value.__code__, value.__defaults__, value.__kwdefaults__
        data = _refold_data(value)
        if data is not None:
            return data, getattr(value, "shape", None)
        if isinstance(value, dict):
            return {k: dict.get(value, k) for k in self.names}
        if isinstance(value, (set, types.MappingProxyType)) or _refold_is_deque(value):
            own = _refold_own(value)
            return list(own) if _refold_is_deque(value) else own
        return _refold_counted(value, self.names)

    def __eq__(self, other: object) -> bool:
        return _refold_alike(self.now(), other)

    __hash__ = None  # type: ignore[assignment]


def _refold_containers(
    value: Any, depth: int = 0, names: Any = None, known: Any = None, places: Any = None
) -> tuple[Any, ...]:
    """Whatever holds something in an attribute or a global, and what it holds now, in turns; of a
    function its (code, defaults, defaults of keywords).

    names: of objects the fields that count, or None for all. places: see `_refold_setting`.
    """
    known = {} if known is None else known
    if _refold_place(value, places) is not None:
        return ()
    if depth > _REFOLD_DEEPEST or id(value) in known or _refold_is_plain(value):
        return ()
    if len(known) >= _REFOLD_VALUES:
        return ()
    known[id(value)] = value
    pair: tuple[Any, ...] = ()
    inner: Any = ()
    own: Any
    if isinstance(value, tuple):
        inner = value
    elif isinstance(value, dict):
        pair, inner = (value, own := _refold_own(value)), own.values()
    elif isinstance(value, list):
        pair, inner = (value, own := _refold_own(value)), own
    elif isinstance(value, (set, types.MappingProxyType)) or _refold_is_deque(value):
        seen = _RefoldSeen(value)
        pair, inner = (seen, own := seen.now()), own.values() if isinstance(own, dict) else own
    elif isinstance(value, functools.partial):
        inner = (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        inner = (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        cells = value.__closure__ or ()
        if _refold_is_function(value):
            bound = [(c, _refold_content(c)) for c in cells]
            bound = [(c, v) for c, v in bound if v is not None]
            pair = (value, _RefoldSeen(value).now(), *(part for one in bound for part in one))
        inner = [*map(_refold_content, cells), value.__defaults__, value.__kwdefaults__]
        inner += [vars(value)]
    elif _refold_is_number(value):
        return ()
    elif _refold_data(value) is not None or _refold_is_variable(value):
        seen = _RefoldSeen(value)
        pair = (seen, seen.now())
    elif (fields := _refold_counted(value, names)) is not None:
        inner = fields.values()
        own = getattr(value, "__dict__", None)
        whole = (
            type(own) is dict
            and own.keys() == fields.keys()
            and _refold_named(value) != "_thread._local"
        )
        seen = own if whole else _RefoldSeen(value, names)
        pair = (seen, own.copy() if whole else seen.now())
    if pair and places and id(value) in places.get("varied", ()):
        alone = {"varied": {id(value): places["varied"][id(value)]}}
        pair = (seen := _RefoldSeen(value, names, alone), seen.now())
    below = (c for v in inner for c in _refold_containers(v, depth + 1, names, known, places))
    return (*pair, *below)


# What a model's attributes hold, followed to classes and to functions in Python.


_REFOLD_LIBRARIES = ("torch", "numpy", "builtins", "math", "typing", "functools", "itertools")
_REFOLD_MOST = 4000  # functions that are followed
_REFOLD_LOADS = (dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_NAME"])
_REFOLD_SHIFTED = sys.version_info >= (3, 11)  # the lowest bit says whether it is called
_REFOLD_SILENT = ("PUSH_NULL", "PRECALL", "CACHE", "EXTENDED_ARG", "RESUME", "NOP")
_REFOLD_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_REFOLD_LONGEST = 1024  # elements of a list, dict or set that are compared


def _refold_is_library(name: Any) -> bool:
    return str(name).split(".")[0] in _REFOLD_LIBRARIES


@functools.lru_cache(maxsize=4096)
def _refold_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names that code and the functions inside it read, and the globals that they assign.

    Globals that are read are marked by a "*" behind the name, as an attribute may be called alike,
    modules that are imported there by a "+", and texts that may be names by a "'". Names that no
    source can spell are of tools that rewrite it, as pytest does asserts: they are not followed.
    """
    read, stored = set(filter(str.isidentifier, code.co_names)), set()
    raw, extended = code.co_code, 0
    for at in range(0, len(raw), 2):
        extended = extended << 8 | raw[at + 1]
        if raw[at] in _REFOLD_LOADS:
            index = extended >> 1 if _REFOLD_SHIFTED and raw[at] == _REFOLD_LOADS[0] else extended
            read |= {f"{name}*" for name in code.co_names[index : index + 1] if name.isidentifier()}
        if raw[at] == dis.opmap["IMPORT_NAME"]:
            read.add(f"{code.co_names[extended]}+")
        if raw[at] == dis.opmap["STORE_GLOBAL"]:
            stored.add(code.co_names[extended])
        if raw[at] != dis.EXTENDED_ARG:
            extended = 0
    for inner in code.co_consts:
        texts = inner if isinstance(inner, (tuple, frozenset)) else (inner,)
        read |= {f"{t}'" for t in texts if isinstance(t, str) and t.replace(".", "").isidentifier()}
        if isinstance(inner, types.CodeType):
            more = _refold_names(inner)
            read |= more[0]
            stored |= more[1]
    return read, stored


@functools.lru_cache(maxsize=4096)
def _refold_computes(code: types.CodeType) -> bool:
    """Whether code, or a function inside it, may read globals by names that it computes: it asks
    `globals()` for another than a text of its own, or evaluates a text that is more than a name."""
    told = [i for i in dis.get_instructions(code) if i.opname not in _REFOLD_SILENT]
    for at, one in enumerate(told):
        if one.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
            continue
        behind = [*told[at + 1 : at + 9], one, one, one, one]
        if one.argval == "globals":
            if behind[0].opname in _REFOLD_CALLS:
                del behind[0]
            if behind[0].argval in ("get", "__getitem__"):
                del behind[0]
                if behind[1].opname == "LOAD_CONST":  # what is given where there is none
                    del behind[1]
                known = behind[0].opname == "LOAD_CONST" and behind[1].opname in _REFOLD_CALLS
            elif behind[0].opname == "CONTAINS_OP":
                known = at > 0 and told[at - 1].opname == "LOAD_CONST"
            else:
                known = behind[0].opname == "LOAD_CONST" and behind[1].opname == "BINARY_SUBSCR"
        elif one.argval in ("eval", "exec"):
            name = behind[0].argval
            known = isinstance(name, str) and name.isidentifier()
            known = known and behind[0].opname == "LOAD_CONST" and behind[1].opname in _REFOLD_CALLS
        else:
            continue
        if not known:
            return True
    return any(_refold_computes(c) for c in code.co_consts if isinstance(c, types.CodeType))


def _refold_has(value: Any, name: str) -> bool:
    """Whether a value or its class has an attribute, without asking it: some answer any name."""
    if any(name in vars(cls) for cls in type(value).__mro__):
        return True
    try:
        return name in object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return False


def _refold_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a method, property or partial; None of all else."""
    for _ in range(4):
        if isinstance(value, types.FunctionType):
            return value
        for field in ("__func__", "fget", "func", "__wrapped__"):
            inner = getattr(value, field, None) if _refold_has(value, field) else None
            if inner is not None:
                value = inner
                break
        else:
            return None
    return None


class _RefoldCode:
    """The code of a function that something holds, with the globals that it reads. What else the
    function has, defaults and variables that it closes over, is of that function alone."""

    def __init__(self, function: types.FunctionType) -> None:
        self.code, self.space = function.__code__, function.__globals__
        self.__qualname__ = function.__qualname__

    def __eq__(self, other: object) -> bool:
        same = type(other) is _RefoldCode and other.code == self.code
        return same and other.space is self.space  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.code)

    def function(self) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in self.code.co_freevars)
        return types.FunctionType(self.code, self.space, self.code.co_name, None, cells)


def _refold_met(values: Iterable[Any], known: dict[int, Any]) -> Iterator[Any]:
    """Functions of the program's own, classes, also those of objects and of models' modules, and
    modules that were imported, which are held by values: in containers, objects, closures,
    defaults, partials and bound methods.

    known: what was looked into, by its id.
    """
    todo, most = list(values), len(known) + _REFOLD_MOST
    while todo and len(known) < most:
        one = todo.pop()
        if id(one) in known or _refold_is_plain(one):
            continue
        inner: Any = ()
        if isinstance(one, types.FunctionType):
            if not _refold_is_library(one.__globals__.get("__name__")):
                yield one
            cells = map(_refold_content, one.__closure__ or ())
            inner = [*cells, *(one.__defaults__ or ()), one.__kwdefaults__, vars(one)]
        elif isinstance(one, types.MethodType):
            inner = (one.__self__, one.__func__)
        elif isinstance(one, functools.partial):
            inner = (one.func, one.args, one.keywords)
        elif isinstance(one, (tuple, frozenset)):
            inner = one
        elif isinstance(one, (list, set)) or _refold_is_deque(one):
            inner = _refold_own(one)
        elif isinstance(one, (dict, types.MappingProxyType)):
            inner = _refold_own(one).values()
        elif isinstance(one, torch.nn.Module):
            yield type(one)
            inner = vars(one).values()
        elif (fields := _refold_fields(one)) is not None:
            yield type(one)
            inner = fields.values()
        elif isinstance(one, types.ModuleType) or (
            isinstance(one, type) and not _refold_is_library(one.__module__)
        ):
            yield one
        else:
            continue
        known[id(one)] = one
        todo += inner if len(inner) <= _REFOLD_LONGEST else ()


def _refold_kinds(model: torch.nn.Module) -> set[Any]:
    """The classes of a model's modules, and of the objects that they hold, and `_RefoldCode` of the
    functions that they hold."""
    known = {id(m): m for m in model.modules()}
    found: set[Any] = {type(m) for m in known.values()}
    held: list[Any] = []
    for module in known.values():
        hidden = "_" if _refold_is_library(type(module).__module__) else "_refold"
        held += [v for name, v in list(vars(module).items()) if not name.startswith(hidden)]
    for one in _refold_met(held, known):
        found.add(_RefoldCode(one) if isinstance(one, types.FunctionType) else one)
    return found


# Which classes, functions and globals forward reads: what its code names, followed through calls.
#
# Python code names what it may read. `_refold_reach` follows the names from the forward of each
# class into the functions that they mean. Where code computes names of globals, all globals of its
# module count; a name that it means by other ways (`getattr` with a computed name) is not seen.


_REFOLD_CALLED = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")
_REFOLD_COMPUTED = {"getattr", "vars", "__dict__", "eval", "exec", "asdict"}
_REFOLD_COMPUTED |= {"attrgetter", "methodcaller"}
_REFOLD_LISTS = {"vars", "__dict__", "dir"}  # which give all names
_REFOLD_SPACES = {"globals", "eval", "exec"}
_REFOLD_IMPORTERS = {"__import__", "import_module", "modules"}
_REFOLD_UNREAD = {"__init__", "__new__", "__repr__", "__str__", "__setattr__", "__class__"}


_RefoldEntries = dict[tuple[int, str], tuple[Any, str, Any]]


class _RefoldReached:
    """entries: (namespace, name, value) of all that is read, a namespace being a module's globals
    or a class; a value that is `_refold_absent` means that there is no such name. cells: closures'
    cells and what they hold. functions: those of the program's own, and their code. containers:
    lists, dicts, sets, arrays and objects among globals, class attributes, closures and defaults,
    and what they hold, in turns. names: all names in the code, those of attributes among them.
    texts: texts in own code that may be names, as those that `hasattr` is given. computed: whether
    own code finds attributes by computed names. listed: whether it may go through all names.
    counted: of objects the fields that count, or None for all.
    """

    def __init__(self) -> None:
        self.entries: _RefoldEntries = {}
        self.cells: dict[int, tuple[Any, Any]] = {}
        self.functions: dict[int, tuple[Any, Any]] = {}
        self.containers: tuple[Any, ...] = ()
        self.names: set[str] = set()
        self.texts: set[str] = set()
        self.computed = self.listed = False

    @property
    def counted(self) -> set[str] | None:
        return None if self.computed else self.names


class _refold_absent:
    pass


def _refold_space(where: Any) -> Mapping[str, Any]:
    return where if isinstance(where, dict) else vars(where)


def _refold_reach(kinds: Iterable[Any]) -> _RefoldReached:
    """All that the forwards of modules of these classes, and functions that are held, read beside
    their modules' attributes (see `_refold_kinds`).

    Whose attribute a name means cannot be seen: it may be any class's that is met. So what the
    program's own code names is followed in all of them, from a module to its parts as well.
    """
    found = _RefoldReached()
    stored: set[tuple[int, str]] = set()
    seen: set[tuple[int, Any]] = set()
    waiting: list[tuple[types.FunctionType, Any]] = []
    classes: dict[type, None] = {}  # whose methods may be called by any code
    modules: dict[int, types.ModuleType] = {}  # that are held, not imported by the code itself
    named: set[str] = set()  # what own code names
    beyond: set[str] = set()  # what own code names that asks for what stands behind a class
    attributes: dict[type, set[str]] = {}
    looked: dict[int, Any] = {}
    roots: list[Any] = []  # what is held by closures and defaults

    def follow(value: Any, owner: Any = None) -> None:
        function = _refold_function(value)
        if function is None or len(seen) >= _REFOLD_MOST:
            return
        key = id(function.__code__), owner
        if key not in seen:
            own = not _refold_is_library(function.__module__)
            if own or str(function.__module__).startswith("torch.nn.modules."):
                seen.add(key)
                waiting.append((function, owner))

    def add(where: Any, name: str, value: Any) -> None:
        found.entries.setdefault((id(where), name), (where, name, value))
        read_there = isinstance(value, (types.FunctionType, types.ModuleType, type))
        if _refold_is_theirs(where) and (not read_there or isinstance(where, type)):
            help_of(value)

    def help_of(value: Any) -> None:
        for one in list(_refold_met((value,), looked)):
            meet(one)

    def meet(kind: Any) -> None:
        if isinstance(kind, types.ModuleType):
            modules.setdefault(id(kind), kind)
        elif not isinstance(kind, type):
            follow(kind.function() if isinstance(kind, _RefoldCode) else kind)
        else:
            own = _refold_is_theirs(kind)
            if own:
                classes.setdefault(kind)
            if own or issubclass(kind, torch.nn.Module):
                for name in _REFOLD_CALLED:
                    add_attribute(kind, name)

    def add_attribute(kind: type, name: str, every: bool = False) -> None:
        """What a class has by a name. every: also what stands behind it, which `super` asks for."""
        for cls in kind.__mro__[:-1]:
            if "_refold_made" in vars(cls):
                continue  # what refold makes of a class is no part of the original
            value = vars(cls).get(name, _refold_absent)
            add(cls, name, value)
            if value is not _refold_absent:
                follow(value, None if kind in classes else kind)
                if not every:
                    return

    def has(kind: type) -> set[str]:
        """The names of all that a class has."""
        if kind not in attributes:
            attributes[kind] = {name for cls in kind.__mro__[:-1] for name in vars(cls)}
        return attributes[kind]

    def inside(value: Any, names: set[str]) -> None:
        """What code of these names reads in a value that it finds: in modules, too. A library's
        modules lead to their own parts alone."""
        todo, passed = [(value, "")], set()
        while todo:
            one, library = todo.pop()
            field = "__name__" if isinstance(one, types.ModuleType) else "__module__"
            home = str(getattr(one, field, "")).split(".")[0]
            if library not in ("", home):
                continue
            if isinstance(one, types.ModuleType) and id(one) not in passed:
                passed.add(id(one))
                top = "" if _refold_is_theirs(vars(one)) else home
                for name in sorted(names & vars(one).keys()):
                    add(vars(one), name, vars(one)[name])
                    todo.append((vars(one)[name], top))
            elif isinstance(one, type) and _refold_is_theirs(one):
                for inner in (*_REFOLD_CALLED, "__init__", *sorted(names & has(one))):
                    add_attribute(one, inner)
            else:
                follow(one)

    def all_of(space: dict[str, Any]) -> None:
        """Code computes the names of globals: it may read any of a module."""
        for name, value in space.items() if _refold_is_theirs(space) else ():
            if name[:2] != "__":
                found.entries.setdefault((id(space), name), (space, name, value))

    def read(function: types.FunctionType, owner: Any) -> None:
        names, assigned = map(set, _refold_names(function.__code__))
        space = function.__globals__
        stored.update((id(space), name) for name in assigned)
        texts = {n[:-1] for n in names if n[-1:] == "'"}
        if not _refold_is_library(function.__module__):
            found.texts.update(texts)
            found.functions[id(function)] = function, _RefoldSeen(function).now()
            held = [*(function.__defaults__ or ()), function.__kwdefaults__, vars(function)]
            roots.extend(held)
            help_of(held)
            found.listed |= bool(_REFOLD_LISTS & names)
            if _REFOLD_COMPUTED & names:
                found.computed = True
                names |= texts
            for name in sorted(names & has(owner)) if owner is not None else ():
                add_attribute(owner, name, every="super" in names)
            if _refold_is_theirs(space):
                named.update(names)
                beyond.update(names - _REFOLD_UNREAD if "super" in names else ())
        found.names.update(names)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            found.cells[id(cell)] = cell, value
            if not isinstance(value, (type, types.ModuleType)):
                help_of(value)
            roots.append(value)
            inside(value, names)
        if _REFOLD_SPACES & names:
            names |= {f"{text}*" for text in texts & space.keys()} | (texts & space.keys())
            if _refold_computes(function.__code__):
                all_of(space)
        sought = texts & sys.modules.keys() if _REFOLD_IMPORTERS & names else set()
        sought |= {str(space.get("__name__"))} if {"modules", "__name__*"} <= names else set()
        for name in [*(n[:-1] for n in names if n[-1:] == "+"), *sought]:
            within = f"{space.get('__package__')}.{name}".rstrip(".")
            module = sys.modules.get(name) or sys.modules.get(within)
            theirs = module is not None and _refold_is_theirs(vars(module))
            if name in sought and theirs and not _refold_is_theirs(space):
                continue  # Python's `inspect` looks for a class in "__main__", and reads no setting
            inside(module, names)
            if module is not None and name in sought and {"getattr", "vars", "__dict__"} & names:
                all_of(vars(module))
        for name in sorted(names):
            value = space.get(name, _refold_absent) if f"{name}*" in names else _refold_absent
            if value is not _refold_absent:
                add(space, name, value)
                inside(value, names)

    for kind in kinds:
        meet(kind)
    met: dict[Any, tuple[int, ...]] = {}
    done: dict[Any, set[str]] = {}

    def so_far() -> tuple[int, ...]:
        return len(found.names), len(named), len(beyond)

    while waiting or any(met.get(one) != so_far() for one in (*classes, *modules)):
        while waiting:
            read(*waiting.pop())
        for place, module in list(modules.items()):
            met[place] = so_far()
            inside(module, named)
        for kind in list(classes):
            met[kind], own, wanted = so_far(), has(kind), named
            if not issubclass(kind, torch.nn.Module):
                special = {name for name in own if name[:2] == "__" == name[-2:]}
                wanted = found.names | (special - _REFOLD_UNREAD)
            known_to = done.setdefault(kind, set())
            for name in sorted(own & wanted):
                for every in (False, True) if name in beyond else (False,):
                    mark = f"{name}{every}"
                    if mark not in known_to:
                        known_to.add(mark)
                        add_attribute(kind, name, every)
    for key in stored:  # what forward itself assigns is no setting
        found.entries.pop(key, None)
    known: dict[int, Any] = {}
    for where, _, value in found.entries.values():
        if _refold_is_theirs(where):
            roots.append(value)
        elif isinstance(value, type(os.environ)):
            roots.append(vars(value)["_data"])
    found.containers = tuple(
        part for value in roots for part in _refold_held_by(value, found.counted, known)
    )
    return found


def _refold_is_theirs(where: Any) -> bool:
    """Is a namespace neither PyTorch's nor one of Python's own modules?"""
    name = where.__module__ if isinstance(where, type) else where.get("__name__")
    return not _refold_is_library(name) and str(name).split(".")[0] not in sys.stdlib_module_names


def _refold_held_by(value: Any, names: Any, known: dict[int, Any]) -> tuple[Any, ...]:
    """What a global, a class's attribute or a closure holds, and what it holds now, in turns."""
    large = isinstance(value, (list, dict, set, tuple)) and len(value) > _REFOLD_LONGEST
    functions = types.FunctionType, types.MethodType, type
    if large or isinstance(value, functions):  # functions are followed by themselves
        return ()
    if isinstance(value, dict):  # a cache of tensors may grow
        inner = _refold_own(value)
        plain = {k for k, v in inner.items() if _refold_setting(v, names=names) is not None}
        if len(plain) < len(inner):
            seen = _RefoldSeen(value, plain)
            below = (c for k in plain for c in _refold_containers(inner[k], 1, names, known))
            return (seen, seen.now(), *below) if plain else ()
    return _refold_containers(value, 0, names, known)


def _refold_as_known(entries: _RefoldEntries, known: _RefoldEntries) -> _RefoldEntries:
    """Entries with the values that they had when they were first met. A class that is not known,
    but another of its name is, has to do what that one does: it may have been defined anew. Not so
    of PyTorch's classes, after which others may well be named."""
    named: dict[tuple[str, str], list[Any]] = {}
    for where, name, value in known.values():
        if isinstance(where, type) and not _refold_is_library(where.__module__):
            named.setdefault((where.__qualname__, name), []).append(value)
    found: _RefoldEntries = {}
    for key, (where, name, value) in entries.items():
        found[key] = known.get(key, (where, name, value))
        own = isinstance(where, type) and not _refold_is_library(where.__module__)
        alike = named.get((where.__qualname__, name)) if own else None
        if alike and key not in known and not any(_refold_same(value, v) for v in alike):
            found[key] = where, name, alike[0]
    return found


def _refold_same(a: Any, b: Any) -> bool:
    """Whether two values are one, or do the same."""
    if a is b:
        return True
    setting = None if a is _refold_absent else _refold_setting(a)
    same = setting is not None and type(a) is type(b)
    return same and _refold_alike(setting, _refold_setting(b))


def _refold_reach_difference(then: _RefoldReached) -> str | None:
    """How what is read differs from what was read then, or None."""
    for where, name, value in then.entries.values():
        now = _refold_space(where).get(name, _refold_absent)
        if not _refold_same(now, value):
            kind = f"the class {where.__qualname__}" if isinstance(where, type) else "the module"
            at = kind if isinstance(where, type) else f"{kind} {where.get('__name__')}"
            return f"{name} of {at} has changed"
    for cell, value in then.cells.values():
        if cell.cell_contents is not value:
            return "a variable that forward's code closes over has changed"
    for function, code in then.functions.values():
        if not _refold_equal(function, code):
            return f"the code or a default of {function.__qualname__} has changed"
    for held, now in zip(then.containers[::2], then.containers[1::2], strict=True):
        if not _refold_equal(held, now):
            return f"{_refold_what(held)} that forward reads has changed"
    return None


def _refold_what(held: Any) -> str:
    held = held.value if type(held) is _RefoldSeen else held
    if isinstance(held, types.CellType):
        return "a variable that a function closes over"
    known = isinstance(held, (list, dict, set))
    words = "list, dict or set among the globals" if known else type(held).__name__
    return f"a {words}"


def _refold_plain_globals(reached: _RefoldReached) -> dict[str, Any]:
    """The globals of values that can be compared, by name; of one name two values: none."""
    found: dict[str, list[Any]] = {}
    for where, name, value in reached.entries.values():
        if isinstance(where, dict) and _refold_is_theirs(where) and value is not None:
            held = _refold_held_by(value, reached.counted, {})
            if held or _refold_is_plain(value) or _refold_is_number(value):
                found.setdefault(name, []).append(_refold_setting(value, names=reached.counted))
    return {k: v[0] for k, v in sorted(found.items()) if v[0] is not None if v == v[:1] * len(v)}


def _refold_modules_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module inside the model by its path, one that is held twice under both."""
    yield from model.named_modules(remove_duplicate=False)


# What is assumed of the modules inside a model, and what of them is looked at before every call.
#
# `_REFOLD_MODULES` has a row for each module: its path, its class, the names of its parameters,
# buffers and children (with a "-" before one that is None), and its settings. `_REFOLD_TIED`, where
# there is one, has the paths of each parameter that is held in several places; `_REFOLD_GLOBALS` the
# plain values among the globals that forward reads; `_REFOLD_OTHERS` the names of further attributes,
# of whose values nothing is said.


_REFOLD_HOLDERS = ("_parameters", "_buffers", "_modules")
_REFOLD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# A library's own hooks, which its forward registers when it is first asked for values inside, and
# which write these to a global of this name, if forward has set it: by the module that they are of.
_REFOLD_COLLECTED = {"transformers.utils.output_capturing": "_active_collector"}


def _refold_collector(hook: Any) -> Any:
    """What a library's own hook writes to; None of others, of which nobody knows what they do."""
    name = _REFOLD_COLLECTED.get(getattr(hook, "__module__", ""), "")
    return getattr(hook, "__globals__", {}).get(name)


def _refold_collectors(model: torch.nn.Module) -> list[Any]:
    """What hooks of the modules inside a model write to, each once."""
    parts = (module for path, module in _refold_modules_of(model) if path)
    hooks = [h for m in parts for holder in _REFOLD_HOOKS for h in getattr(m, holder).values()]
    found = map(_refold_collector, hooks)
    return list({id(one): one for one in found if one is not None}.values())


def _refold_acts_around(module: torch.nn.Module) -> bool:
    """Does anything act around a module's forward, or stand in its place? A library's own hook does
    not while nobody outside of forward collects."""
    hooks = (hook for holder in _REFOLD_HOOKS for hook in getattr(module, holder).values())
    collectors = map(_refold_collector, hooks)
    return "forward" in vars(module) or any(c is None or c.get() is not None for c in collectors)


def _refold_held(module: torch.nn.Module) -> str:
    """The names of a module's parameters, buffers and children in order; "-" marks what is None."""
    found = []
    for holder in _REFOLD_HOLDERS:
        for name, value in getattr(module, holder).items():
            found.append(f"-{name}" if value is None else name)
    return " ".join(sorted(found))


def _refold_told_apart(now: set[str], then: set[str]) -> str:
    """What `_refold_held` gives now and gave then, in words."""
    more, less = ([f"'{n}'" for n in sorted(s) if n[:1] != "-"] for s in (now - then, then - now))
    gained = f"has {', '.join(more)}, which it had not" if more else ""
    lost = f"has no {', '.join(less)} any more" if less else ""
    return ", and ".join(filter(None, (gained, lost))) or "has other names that hold nothing"


def _refold_tied(model: torch.nn.Module) -> tuple[tuple[str, ...], ...]:
    """The paths of every parameter and buffer that is held under several names."""
    found: dict[int, list[str]] = {}
    for path, module in _refold_modules_of(model):
        for holder in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, holder).items():
                if tensor is not None:
                    found.setdefault(id(tensor), []).append(f"{path}.{name}" if path else name)
    return tuple(tuple(paths) for paths in found.values() if len(paths) > 1)


def _refold_inside(model: torch.nn.Module, path: str) -> torch.nn.Module | None:
    """The module at a path, or None."""
    module: torch.nn.Module | None = model
    for part in path.split(".") if path else ():
        module = module._modules.get(part) if module is not None else None
    return module


def _refold_tensor(model: torch.nn.Module, path: str) -> Any:
    """What a path names: a parameter, a buffer or an attribute; None if there is none."""
    parent, _, name = path.rpartition(".")
    module = _refold_inside(model, parent)
    return None if module is None else getattr(module, name, None)


# settings of PyTorch's own modules that decide nothing in eval mode
_REFOLD_IN_TRAINING = (
    (torch.nn.modules.batchnorm._BatchNorm, "momentum"),
    (torch.nn.modules.dropout._DropoutNd, "p"),
)


def _refold_trains_alone(module: torch.nn.Module, name: str) -> bool:
    """Is a setting read in train mode alone? Loops change such ones as they go on."""
    own = type(module).__module__.startswith("torch.nn.")
    return own and any(isinstance(module, k) and name == n for k, n in _REFOLD_IN_TRAINING)


def _refold_gained(
    module: torch.nn.Module,
    known: Collection[str],
    path: str,
    assigned: Collection[str],
    reached: Any,
) -> list[str]:
    """The attributes that code names, and that a module has got since: `hasattr` tells them. Where
    code may go through all names, all that are not private.

    known: those that it had. assigned: paths of attributes that forward itself sets.
    """
    kind = type(module)
    if _refold_is_library(kind.__module__):
        return []
    found = vars(module).keys() - known - _REFOLD_USUAL
    return sorted(
        name
        for name in found
        if name in reached.names or name in reached.texts or (reached.listed and name[0] != "_")
        if not name.startswith("_refold")
        if f"{path}.{name}".strip(".") not in assigned
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    )


def _refold_given_anew(model: torch.nn.Module) -> str | None:
    """A name of the original's class that a class made of the fast one gives anew, or None: forward
    may reach it. Its own forward may call the fast one's."""
    classes = type(model).__mro__
    made = next((i for i, c in enumerate(classes) if "_refold_made" in vars(c)), 0)
    theirs = (c for c in classes[made + 1 :] if not c.__module__.startswith("torch."))
    names = {name for c in theirs for name in vars(c) if not name.startswith("__")} - {"forward"}
    return next((name for c in classes[:made] for name in vars(c) if name in names), None)


def _refold_difference(
    model: torch.nn.Module,
    modules: Sequence[tuple[str, str, str, dict[str, Any]]],
    apart: Sequence[str] | None,
    tied: Sequence[Sequence[str]],
    numbers: dict[str, Any],
    others: dict[str, Sequence[str]],
    assigned: Collection[str],
    reached: _RefoldReached,
    varied: Sequence[tuple[Any, ...]] = (),
) -> str | None:
    """How a model differs from the one that the kernels were made for, or None.

    apart: of a mode (`_refold_mode`). assigned: paths of attributes that forward sets.
    """
    shared = torch.nn.modules.module
    if shared._global_forward_hooks or shared._global_forward_pre_hooks:
        return "every module has a global hook"
    anew = _refold_given_anew(model)
    if anew is not None:
        return f"the class {type(model).__qualname__} has another {anew}"
    places = _refold_places(model, varied)
    for path, kind, held, settings in modules:
        module = _refold_inside(model, path)
        words = path or "the model"
        if module is None:
            return f"the module {path} is gone"
        if path:
            if type(module).__qualname__ != kind:
                return f"{path} is a {type(module).__qualname__}, not a {kind}"
            same = module.training is model.training
            if apart is not None and same is (path in apart):
                return f"{path} is {'' if same else 'not '}in the same mode as the model"
            if _refold_acts_around(module):
                return f"{path} has hooks or a forward of its own"
        found = _refold_held(module)
        if found != held:
            return f"{words} {_refold_told_apart(set(found.split()), set(held.split()))}"
        for name, setting in settings.items():
            if not module.training and _refold_trains_alone(module, name):
                continue
            held_now = getattr(module, name, None)
            value = _refold_setting(held_now, names=reached.counted, places=places)
            known = value is not None or held_now is None  # nothing is said of a tensor
            if not known or not _refold_alike(value, setting):
                return f"the setting {name} of {words} has changed"
        had = {*settings, *others.get(path, ())}
        for name in _refold_gained(module, had, path, assigned, reached):
            return f"the setting {name} of {words} is new"
    for paths in tied:
        first = _refold_tensor(model, paths[0])
        if any(_refold_tensor(model, path) is not first for path in paths[1:]):
            return f"{' and '.join(paths)} are no longer one parameter"
    found_numbers = _refold_plain_globals(reached)
    for name, setting in numbers.items():
        if name in found_numbers and not _refold_alike(found_numbers[name], setting):
            return f"the global {name} has changed"
    return _refold_reach_difference(reached)


class _RefoldRows:
    """What `watch` of the kernels takes (see watch above): how things are in a model now."""

    def __init__(
        self,
        model: torch.nn.Module,
        names: dict[str, tuple[str, ...]],
        reached: _RefoldReached,
        assigned: Sequence[str] = (),
        tensors: Sequence[str] = (),
        varied: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        """assigned: paths of attributes that forward itself sets. tensors: of those that are read,
        some of which may not be there yet."""
        shared = torch.nn.modules.module
        rows: list[tuple[Any, ...]] = [
            (d, len(d)) for d in (shared._global_forward_hooks, shared._global_forward_pre_hooks)
        ]
        kinds: list[Any] = []
        alike: list[Any] = []
        types: dict[type, None] = {}
        places = _refold_places(model, varied)
        for path, module in _refold_modules_of(model):
            inside = f"{path}." if path else ""
            own = {p.removeprefix(inside) for p in assigned if p.startswith(inside)}
            read = {p.rpartition(".")[2] for p in tensors if p.rpartition(".")[0] == path}
            settings = (
                *names.get(path, ()),
                *sorted(read - {*module._parameters, *module._buffers}),
            )
            rows += _refold_dict_rows(module, settings, own, root=not path)
            if path or not hasattr(type(model), "_refold_twin"):  # a twin looks at its own class
                kinds += (module, type(module))
            types[type(module)] = None
            for name in names.get(path, ()):
                held = vars(module).get(name)
                alike += _refold_containers(held, names=reached.counted, places=places)
        for collector in _refold_collectors(model):
            alike += _refold_containers(collector)
        spaces: dict[int, list[Any]] = {}
        for where, name, value in reached.entries.values():
            if isinstance(where, type):
                types[where] = None
                continue
            row = spaces.setdefault(id(where), [where, -1])
            value = where.get(name, _refold_absent)  # may be another than at first, if it is alike
            row += (name, where if value is _refold_absent else value)
        self.dicts = (*rows, *map(tuple, spaces.values()))
        self.types, self.kinds = tuple(types), tuple(kinds)
        alike += reached.containers
        pairs = list(zip(alike[::2], alike[1::2], strict=True))
        functions = [p for p in pairs if isinstance(p[0], (CellType, FunctionType))]
        cells = (*reached.cells.values(), *reached.functions.values(), *functions)
        self.cells = tuple(part for cell in cells for part in cell)
        others = (p for p in pairs if not isinstance(p[0], (CellType, FunctionType)))
        self.alike = tuple(part for pair in others for part in pair)


class _RefoldStructure:
    """What was found of a model's structure: its rows, and the difference, or None. While the rows
    hold, it need not be looked for again: a write to parameters changes none of them."""

    def __init__(self, model: torch.nn.Module, file: Any, mode: dict[str, Any]) -> None:
        reached = file.reached(model)
        paths = [path for path, _, _ in mode["tensors"]]
        given = mode["assigned"], paths, file.varied
        self.rows = rows = _RefoldRows(model, file.names, reached, *given)
        self.model, self.kernels = vars(model), file.kernels
        self.fixed = (rows.dicts, rows.types, rows.kinds, (), (), ())
        self.memory = file.kernels.watch(*self.fixed, 0)
        self.difference = file.difference(model, reached, mode)

    def holds(self, model: torch.nn.Module) -> bool:
        asked = (*self.fixed, self.rows.cells, self.rows.alike, self.memory)
        return vars(model) is self.model and bool(self.kernels.unchanged(*asked))


def _refold_differ_plainly(a: _RefoldRows, b: _RefoldRows) -> bool:
    """Whether two structures of one model differ in plain settings alone: who keeps both holds no
    tensor or module that the model no longer has."""

    def alike(held: Any, other: Any) -> bool:
        if held is other or (_refold_is_plain(held) and _refold_is_plain(other)):
            return True
        if type(held) is dict and type(other) is dict and held.keys() == other.keys():
            return all(value is other[key] for key, value in held.items())
        same = type(held) is type(other) and isinstance(held, (list, tuple))
        return same and len(held) == len(other) and all(map(alike, held, other))

    pairs = ((a.dicts, b.dicts), (a.cells, b.cells), (a.alike, b.alike))
    same = a.types == b.types and all(map(operator.is_, a.kinds, b.kinds))
    return same and len(a.kinds) == len(b.kinds) and all(alike(*pair) for pair in pairs)


def _refold_dict_rows(
    module: torch.nn.Module, names: tuple[str, ...], assigned: set[str], root: bool
) -> Iterator[tuple[Any, ...]]:
    """Rows of a module's dictionaries: (dict, size or -1, key, value, ...), but for attributes that
    forward sets."""
    own = vars(module)
    read = ["training", *_REFOLD_HOLDERS, *names]
    if not root:
        read += ["forward", *_REFOLD_HOOKS]
    held = [name for holder in _REFOLD_HOLDERS for name in own.get(holder, ())]
    tensors = [name for name, value in own.items() if isinstance(value, torch.Tensor)]
    keys = dict.fromkeys(key for key in (*read, *held, *tensors) if key not in assigned)
    # of others than PyTorch's own code may ask whether there is an attribute
    size = -1 if _refold_is_library(type(module).__module__) else len(own)
    yield (own, size, *(part for key in keys for part in (key, own.get(key, own))))
    for holder in _REFOLD_HOLDERS:
        inner = own[holder]
        items = [item for item in inner.items() if item[0] not in assigned]
        yield (inner, len(inner), *(part for item in items for part in item))
    if not root:
        for hooks in _REFOLD_HOOKS:
            yield (own[hooks], len(own[hooks]))


def _refold_module_classes(names: dict[str, Any]) -> list[type]:
    """The classes of modules among a file's globals, but for the one that refold made."""
    found = (v for v in list(names.values()) if isinstance(v, type))
    return [v for v in found if issubclass(v, torch.nn.Module) and "_refold_made" not in vars(v)]


# Folded parameters are computed in float64 and rounded once: whether they fit what they become.


def _refold_rounded(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`exact` in `dtype`. Raises RuntimeError where that loses more than the last digit.

    A product of parameters may be too large or too small for `dtype`, though each of its factors,
    and the original's result, are not. Infinities and NaN of the parameters themselves pass, and so
    do small elements that are negligible beside the largest.
    """
    rounded = exact.to(dtype)
    if not rounded.numel() or (rounded.is_cuda and torch.cuda.is_current_stream_capturing()):
        return rounded  # while a CUDA graph is captured nothing may wait for the device
    low, high = torch.aminmax(rounded)
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    negligible = 2.0**-100
    if least / negligible <= max(-low.item(), high.item()) <= most:
        return rounded  # whatever is too small is negligible
    known = exact[exact.isfinite()].abs()
    if not known.numel() or known.max() == 0:
        return rounded
    small = known[(known > 0) & (known < least)]
    if known.max() > most or (small.numel() and small.max() > negligible * known.max()):
        raise RuntimeError(f"a product of parameters leaves the range of {dtype}")
    return rounded


# What every fast call asks before its kernels run, and what a call that cannot be fast does.


# by names of their own they are found sooner
_refold_is_compiling = torch.compiler.is_compiling
_refold_grad_enabled = torch.is_grad_enabled
_refold_function_modes = torch._C._len_torch_function_stack  # how many
_refold_dispatch_modes = torch._C._len_torch_dispatch_stack  # how many
_refold_is_tracing = torch._C._is_tracing
_refold_transformed = torch._C._are_functorch_transforms_active
_refold_autocast = torch.is_autocast_enabled
_refold_forward_ad = torch.autograd.forward_ad
_refold_tensor_guards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
_refold_log = logging.getLogger("refold")
_refold_fallbacks = logging.getLogger("refold.fallbacks")
_refold_cache_log = logging.getLogger("refold.cache")
_refold_told: set[str] = set()


class _RefoldReason(str):
    """Why a call takes the original forward; empty where the file was made so."""


def _refold_own_caches(model: torch.nn.Module) -> dict[str, Any]:
    """Where a model keeps what is folded of its parameters, by the mode's name."""
    caches: dict[str, Any] = vars(model).setdefault("_refold_caches", {})
    return caches


def _refold_refresh(self: torch.nn.Module) -> None:
    """Forget the folded parameters: after a write to part of a parameter that PyTorch does not
    count. All other writes are seen."""
    vars(self).pop("_refold_caches", None)


def _refold_like(*tensors: torch.Tensor) -> Callable[..., bool]:
    """A function that tells whether other tensors are like these: of the same types, dtypes, sizes,
    strides and devices, and under the same modes and transforms, as the keys tell by which PyTorch
    would dispatch an operation on them. torch.compile guards its code by the same."""
    if _refold_tensor_guards is None:
        return _refold_unlike
    if not tensors:
        return lambda: True
    guards = _refold_tensor_guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = guards.check
    return check


def _refold_unlike(*tensors: torch.Tensor) -> bool:
    return False


def _refold_is_watched(device: int, kind: str) -> bool:
    """True if a function mode is active, but for one that puts new tensors where the arguments are
    (torch.set_default_device)."""
    from torch.utils._device import DeviceContext

    stack: Any = torch.overrides
    for mode in stack._get_current_function_mode_stack():
        place = mode.device if type(mode) is DeviceContext else None
        if place is None or place.type != kind or place.index not in (None, max(device, 0)):
            return True
    return False


def _refold_traced() -> str | None:
    """Why the arguments are not to be looked at, which a tracer would note, or None."""
    return "a tracer is active" if _refold_is_tracing() else None


def _refold_argument(
    name: str, value: Any, sizes: tuple[Any, ...], dtype: torch.dtype, kind: str
) -> str | None:
    """Why an argument is not a tensor as the kernels take it, or None.

    sizes: of each dimension its size, None for any from 2 on, (least, largest or None), or ... for
    any.
    """
    if type(value) is torch.Tensor and value.dtype is dtype and value.layout is torch.strided:
        try:
            shape = value.shape
        except RuntimeError:  # of a nested tensor, which says that it is strided
            return f"{name} is not a plain dense tensor"
        if (value.is_cuda if kind == "cuda" else value.is_cpu) and len(shape) == len(sizes):
            for found, size in zip(shape, sizes):  # noqa: B905  strict= costs 0.2 µs
                if found != size and (found < 2 if size is None else size is not ...):
                    break  # unless it is in the range that a pair gives
            else:
                if not value.is_neg() and not (dtype.is_complex and value.is_conj()):
                    return None
    return _refold_wrong_argument(name, value, sizes, dtype, kind)


def _refold_wrong_argument(
    name: str, value: Any, sizes: tuple[Any, ...], dtype: torch.dtype, kind: str
) -> str | None:
    """The same, in all cases."""
    plain = type(value) is torch.Tensor and value.layout is torch.strided and not value.is_nested
    if not plain or value.is_neg() or value.is_conj():
        return f"{name} is not a plain dense tensor"
    if value.dtype is not dtype or not (value.is_cuda if kind == "cuda" else value.is_cpu):
        return f"{name} is {value.dtype} on {value.device}, not {dtype} on {kind}"
    shape = value.shape
    fixed = zip(shape, sizes, strict=False)
    if len(shape) != len(sizes) or any(type(s) is int and n != s for n, s in fixed):
        told = ", ".join(str(size) if type(size) is int else "n" for size in sizes)
        return f"{name} has the shape {tuple(shape)}, not [{told}]"
    for i, (found, size) in enumerate(zip(shape, sizes, strict=True)):
        least, most = size if type(size) is tuple else (2 if size is None else 0, None)
        if found < least or (most is not None and found > most):
            return f"{name} has size {found} in dimension {i}"
    return None


def _refold_tensors_misfit(
    tensors: Sequence[Any], states: Sequence[Any], mode: dict[str, Any], device: int
) -> str | None:
    """Why parameters are not as the kernels take them, or None."""
    for t, (name, shape, dtype) in zip(tensors, mode["tensors"], strict=True):
        if not isinstance(t, torch.Tensor):
            return f"{name} is a {type(t).__name__}"
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            return f"{name} is a {type(t).__name__}"
        there = t.get_device() == device and (t.is_cpu or device >= 0)  # -1: of others, too (meta)
        if t.shape != shape or t.dtype is not dtype or not there:
            return f"{name} is {t.dtype}{list(t.shape)} on {t.device}"
        if t.layout is not torch.strided or t.is_neg() or t.is_conj():
            return f"{name} is not a plain dense tensor"
        if t.stride() != mode["strides"].get(name, t.stride()):
            return f"{name} has other strides, which draws of random numbers follow"
    for t in states:
        if not t.is_contiguous():
            return "a buffer that is written is not contiguous"
    return None


# why calls take the original forward whatever their arguments are, in every file
_REFOLD_FOR_ALL = (
    "autocast is active",
    "a dispatch or function mode is active",
    "a transform of torch.func or forward-mode differentiation is active",
)
_REFOLD_PUT_OFF = (
    "parameters or settings change so often that to follow them would take longer than it saves:"
    " that is put off until they stay as they are for some calls"
)
# why nothing is made for a call: it may come again without these
_REFOLD_PASSING = frozenset((*_REFOLD_FOR_ALL, _REFOLD_PUT_OFF, "gradients are wanted"))


def _refold_context(device: int, kind: str) -> str | None:
    """Why a call takes the original forward whatever its arguments are, or None."""
    if _refold_autocast(kind):
        return _REFOLD_FOR_ALL[0]
    modes = _refold_function_modes() and _refold_is_watched(device, kind)
    if _refold_dispatch_modes() or modes:
        return _REFOLD_FOR_ALL[1]
    if _refold_transformed() or _refold_forward_ad._current_level >= 0:
        return _REFOLD_FOR_ALL[2]
    return None


def _refold_warn_fallback(reason: str) -> None:
    """Log once for each reason why the original forward was taken."""
    if reason not in _refold_told:
        _refold_told.add(reason)
        _refold_fallbacks.warning("refold: the original forward was taken: %s", reason)


def _refold_in_channels(images: torch.Tensor) -> bool:
    """Whether PyTorch takes images of four or five dimensions to lie with their channels last."""
    last = torch.channels_last if images.dim() == 4 else torch.channels_last_3d
    try:
        found = images.is_contiguous(memory_format=last)
    except RuntimeError:  # under vmap nobody may ask, and the original is called
        return False
    if found != images.is_contiguous():
        return found
    # of one channel, or one place, or no dense tensor: as PyTorch asks of strides alone
    sizes, strides, least = images.shape, images.stride(), 0
    if strides[1] == 0:
        return False
    for i in (1, *range(images.dim() - 1, 1, -1), 0):
        if sizes[i] == 0 or strides[i] < least or (i == 0 and least == strides[1]):
            return False
        least = strides[i] * max(sizes[i], 1)
    return True


def _refold_order(value: torch.Tensor) -> tuple[int, ...]:
    """A tensor's dimensions from the one with the largest stride to that with the smallest."""
    axes = tuple(range(value.dim()))
    if _refold_is_ordered(value, axes):
        return axes
    shape, strides = value.shape, value.stride()
    return tuple(sorted(axes, key=lambda axis: (-strides[axis], -shape[axis])))


def _refold_is_ordered(value: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Whether a tensor's elements lie in this order of its dimensions. Those of one element, and
    those that are expanded, lie in any order. Of two that overlap, and have one stride, PyTorch
    takes the shorter one for the inner one."""
    shape, strides, last, length = value.shape, value.stride(), None, 0
    for axis in order:
        stride = strides[axis]
        if shape[axis] > 1 and stride:
            if last is not None and (stride > last or (stride == last and shape[axis] > length)):
                return False
            last, length = stride, shape[axis]
    return True


def _refold_laid_out(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """`value` in memory with the strides that the original's result has, 0 where it is expanded."""
    shape, live = value.shape, [i for i, n in enumerate(value.shape) if n > 1]
    if not value.numel() or all(value.stride(i) == strides[i] for i in live):
        return value
    for i in live:
        if strides[i] == 0:
            value = value.narrow(i, 0, 1)
    return value.new_empty_strided(value.shape, strides).copy_(value).expand(shape)


def _refold_tokens(value: torch.Tensor) -> tuple[Any, ...]:
    """`value` [..., tokens, heads, features] as attention's kernels read it, and its distances from
    a batch, a token and a head to the next. It is laid out anew where features have gaps."""
    if value.stride(-1) != 1 and value.shape[-1] != 1:
        value = value.contiguous()
    *_, batch, token, head, _ = (0, 0, *value.stride())
    return value, batch, token, head


# Looks: a kernel of each call compares a few words of device memory with what they were.
#
# The host cannot read a GPU's memory without waiting for the GPU. So the first kernel of a call does
# (kernels/look.h), sets a flag in host memory, and the call after reads the flag: a write to a whole
# parameter that nothing else shows is followed one call late. A call that takes the original starts a
# kernel that only looks.


_REFOLD_SAMPLES = 32  # words of a parameter, as many as the host samples


def _refold_is_readable(device: int) -> bool:
    """True if the host reads the memory of a device's tensors."""
    return device < 0


def _refold_extent(t: torch.Tensor) -> int:
    """The bytes from a tensor's first element to its last."""
    if not t.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return (last + 1) * t.element_size()


def _refold_words(t: torch.Tensor) -> tuple[torch.Tensor, list[int]] | None:
    """A parameter's memory as 32-bit words, and those of them that are looked at."""
    count = t.numel() * t.element_size() // 4
    if not count or not t.is_contiguous() or t.data_ptr() % 4:
        return None
    flat = t.detach().reshape(-1)[: count * 4 // t.element_size()].view(torch.int32)
    if count <= 2 * _REFOLD_SAMPLES:
        return flat, list(range(count))
    golden = 0x9E3779B97F4A7C15
    spread = ((k * golden % 2**64) * count >> 64 for k in range(_REFOLD_SAMPLES))
    return flat, list(spread)


def _refold_look_at(
    cache: Any,
    kernels: Any,
    memory: bytearray,
    sources: list[tuple[torch.Tensor, bool]],
    place: torch.device,
) -> None:
    """Let the kernels of a cache compare what these sources held when values were computed of them:
    now, where they are said to have changed; else what they are compared with already, so that a
    write which nobody has seen yet is seen still. The tables keep their place: a CUDA graph may
    read them."""
    addresses: list[int] = []
    held: list[torch.Tensor] = []
    before, begins = cache.looked_at, dict[tuple[int, ...], int]()
    with torch.inference_mode(False), torch.no_grad():
        for t, changed in sources:
            words = _refold_words(t)
            if words is not None:
                flat, at = words
                of_source = tuple(flat.data_ptr() + 4 * i for i in at)
                begins[of_source] = len(addresses)
                addresses += of_source
                if changed or of_source not in before:
                    held.append(flat[torch.tensor(at, device=flat.device)])
                else:
                    held.append(cache.looked[1][before[of_source] :][: len(at)])
        if not held:
            cache.looked, cache.looked_at = None, {}
            return
        table = torch.tensor(addresses, dtype=torch.int64).to(place)
        expected = torch.cat(held)
        old = cache.looked
        if old is not None and old[0].shape == table.shape and old[0].device == table.device:
            table, expected, flag = old[0].copy_(table), old[1].copy_(expected), old[2]
        else:
            flag = torch.zeros(1, dtype=torch.int32)
            flag = flag.pin_memory() if place.type == "cuda" else flag
    cache.looked, cache.looked_at = (table, expected, flag), begins
    cache.epoch += 1  # kernels that are still running tell of an earlier one
    kernels.look(
        memory, table.data_ptr(), expected.data_ptr(), table.numel(), cache.epoch, flag.data_ptr()
    )


def _refold_look_meanwhile(caches: dict[str, Any], file: Any) -> None:
    """Of a call that takes the original: let a kernel look at what is kept of the parameters, so
    that the next fast call knows of a write before this one."""
    for cache in list(caches.values()):
        if cache.looked is None or cache.reason is not None:
            continue  # nothing is kept
        if cache.stepped is not None and (cache.stepped or cache.doubt != 2):
            continue  # what an optimizer wrote, or all, is computed anew in any case
        if _refold_captures(cache.device):
            continue
        # not asked: `laid`, which says no under autocast; addresses are as they were
        if file.kernels.unchanged(*cache.watched):
            file.look_alone(cache.device)  # what `unchanged` has made due


def _refold_captures(device: int) -> bool:
    """Is a CUDA graph captured? Nothing can be looked at then: doubt waits. What the graph reads of
    folds keeps its place."""
    return device >= 0 and torch.cuda.is_current_stream_capturing()


def _refold_doubt(caches: dict[str, Any], doubt: int) -> None:
    """Let all that a module has folded be computed anew by the next call that reads it; with the
    `doubt` that it holds then."""
    everywhere: Callable[[], Any] = getattr(caches, "everywhere", caches.values)
    for each in list(everywhere()):
        each.seen, each.stepped, each.fits = (), each.stepped or set(), _refold_unlike
        each.doubt = doubt


# How soon what is folded is computed anew, where parameters change again and again.
#
# To look at everything anew costs as much as some calls, up to thirty of a small model. Where it is
# done for one call, as by a program that loads weights before each, the original forward costs less.
# So each such renewal is judged when the next change is seen: it has paid where the program ran on
# for PAID times as long as it took. Behind FREE that have not paid the next one is put off until the
# parameters stay as they are for a call, behind one more for three, seven, ...; each that has paid
# takes one step back. Whatever a program does, renewals then take about a sixteenth of its time.


_REFOLD_PAID = 16.0  # times its own duration
_REFOLD_FREE = 8  # renewals that have not paid before the first is put off
_REFOLD_PATIENCE = 10  # doublings, at most


class _RefoldPace:
    """When the values of one cache are computed anew.

    level: how many renewals more have not paid than have. took, ended: the seconds of the last one,
    and when it ended. judged: whether it is known if it has paid. held: what tells that parameters
    stay, as the last call that was put off found it; stayed: for how many calls. always: nothing is
    put off, because a CUDA graph may replay what is folded.
    """

    def __init__(self) -> None:
        self.level, self.stayed = 0, 0
        self.took = self.ended = 0.0
        self.judged, self.always = True, False
        self.held: Any = None

    def puts_off(self, holds: Callable[[], Any]) -> bool:
        """Whether the original forward takes this call, which has seen a change. holds: gives what
        tells whether the next one sees another change."""
        if not self.judged:
            self.judged, self.held = True, None
            paid = time.perf_counter() - self.ended >= _REFOLD_PAID * self.took
            most = _REFOLD_FREE + _REFOLD_PATIENCE - 1
            self.level = max(self.level - 1, 0) if paid else min(self.level + 1, most)
        if self.level < _REFOLD_FREE or self.always:
            return False
        held = holds()
        self.stayed = self.stayed + 1 if held == self.held else 0
        self.held = held
        return self.stayed < (1 << (self.level - _REFOLD_FREE + 1)) - 1

    def renewed(self, began: float) -> None:
        """All was looked at anew, from `began` on."""
        self.ended = time.perf_counter()
        self.took, self.judged = self.ended - began, False


# Optimizers and averages: what writes parameters uncounted, so that its end is looked for.
#
# A fused step counts nothing, and on a GPU `torch._foreach_lerp_` does not, by which `AveragedModel`
# averages.


_refold_live: weakref.WeakSet[Any] = weakref.WeakSet()
_refold_hook: list[Any] = []


def _refold_follow_optimizers(cache: Any) -> None:
    """Let the end of every optimizer's step, and of every average's, be known to a cache, as long
    as the cache lives."""
    if cache in _refold_live:
        return
    _refold_live.add(cache)
    weakref.finalize(cache, _refold_unfollow).atexit = False
    if not _refold_hook:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _refold_hook.append(register_optimizer_step_post_hook(_refold_stepped))
        _refold_followers().append(_refold_averaged)


def _refold_unfollow() -> None:
    """The hook would keep this whole file alive: without caches it goes."""
    if not list(_refold_live) and _refold_hook:
        _refold_hook.pop().remove()
        _refold_followers().remove(_refold_averaged)


def _refold_followers() -> list[Any]:
    """Whom the end of every `AveragedModel.update_parameters` is told, of all files. Two threads
    that wrap it at once wrap it twice: whoever follows is told twice then."""
    from torch.optim import swa_utils

    followers: list[Any] = vars(swa_utils).setdefault("_refold_followers", [])
    averaged: Any = swa_utils.AveragedModel
    update = averaged.update_parameters
    if not hasattr(update, "_refold_followed"):

        @functools.wraps(update)
        def followed(model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return update(model, *args, **kwargs)
            finally:
                for follower in list(followers):
                    follower(model)

        made: Any = followed
        made._refold_followed, averaged.update_parameters = True, made
    return followers


def _refold_storage(t: torch.Tensor) -> int | None:
    """Where a tensor's memory begins. Sparse and distributed ones have none of their own."""
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def _refold_stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """An optimizer has written its parameters, or memory that they are views of."""
    _refold_wrote([p for group in optimizer.param_groups for p in group["params"]])


def _refold_averaged(model: Any) -> None:
    """An average has been moved on."""
    _refold_wrote([*model.module.parameters(), *model.module.buffers()])


def _refold_wrote(written: Sequence[torch.Tensor]) -> None:
    ids = set(map(id, written))
    storages = set(map(_refold_storage, written)) - {None} if len(written) <= 64 else set()
    for cache in list(_refold_live):
        hit = {id(t) for t in cache.copies if id(t) in ids}
        if storages:
            hit |= {
                id(t)
                for t in cache.copies
                if t.is_contiguous() and t.untyped_storage().data_ptr() in storages
            }
        if hit:
            cache.stepped = (cache.stepped or set()) | hit
            cache.fits, cache.pace.held = _refold_unlike, None


# Folded parameters: computed from parameters alone, kept, and computed anew when these change.
#
# By what a change is seen (docs/decisions/0011): PyTorch's counters of writes, addresses, the module
# tree, batch norm's own counter, the end of an optimizer's step, and on the CPU what the memory of
# the parameters holds.


_REFOLD_LOOKED_THROUGH = 1  # KiB of copied parameters that each call looks through
_REFOLD_REFUSED = 4  # structures that kernels do not suit and that are known at once
_REFOLD_WHOLE = 2048  # bytes that are compared whole at every call, see contents.h
# what `altered` says: an uncounted write was found by the audit, or by the kernels of the last call
_REFOLD_AUDIT, _REFOLD_LATE = 6, 10
_REFOLD_OF_TENSORS = (0, 4, 5, 9)  # nothing, or a write, in a structure that is as it was
_REFOLD_SAID = {
    _REFOLD_AUDIT: (
        "part of a parameter was written in a way that PyTorch does not count (%s): results since"
        " then were computed from its old values. From now on they are right. Call refold_refresh()"
        " after such a write."
    ),
    _REFOLD_LATE: (
        "a parameter was written in a way that PyTorch does not count (%s): the last result of"
        " kernels before this call may come from its old values. From now on they are right. Call"
        " refold_refresh() after such a write."
    ),
}
# how a parameter is read as it is: in the order of its axes, or as it lies
_REFOLD_READ = (torch.Tensor.contiguous, torch.Tensor.detach)


class _RefoldCache:
    """What one mode reads of the parameters, with evidence of everything that it came from.

    sources: the parameters read; seen: their versions, addresses and strides. values: what is
    computed from them. reason: why the original forward runs as long as nothing changes, or None.
    watched: the arguments of `unchanged` of the kernels. states: the buffers that are written.
    tensors, laid: the sources and the states, and whether they still have the sizes and strides
    that they had. fits: whether tensors are like those of the last call that came without
    gradients. stepped: the identities of parameters that an optimizer wrote since. audited: the
    names of the sources whose memory is looked through; audit_calls: in how many calls. looked,
    looked_at, epoch: see look.py. doubt: whether another mode saw an uncounted write, or nothing
    was looked at for a while (1), and all was computed anew since, by the last call, whose kernels
    compare with what was there before (2). structure: what was found of the model's structure, if
    the kernels suit it; refused: others that they do not suit, and that come and go. copies: the
    sources of which a copy or a fold is kept. pace: when values are computed anew; waits: whether
    that is put off.
    Copies and pickles of a module start with empty caches.
    """

    def __init__(self, device: int | None = None) -> None:
        self.device, self.stream, self.event = device, None, None
        self.sources: tuple[torch.Tensor, ...] = ()
        self.seen: tuple[Any, ...] = ()
        self.values: tuple[torch.Tensor, ...] = ()
        self.reason: str | None = None
        self.watched: tuple[Any, ...] | None = None
        self.structure: _RefoldStructure | None = None
        self.refused: tuple[_RefoldStructure, ...] = ()
        self.tensors: tuple[torch.Tensor, ...] = ()
        self.states: tuple[torch.Tensor, ...] = ()
        self.laid: Callable[..., bool] = _refold_unlike
        self.fits: Callable[..., bool] = _refold_unlike
        self.stepped: set[int] | None = None
        self.audited: tuple[str, ...] = ()
        self.audit_calls = 0
        self.looked: tuple[torch.Tensor, ...] | None = None
        self.looked_at: dict[tuple[int, ...], int] = {}
        self.epoch = 0
        self.doubt = 0
        self.copies: tuple[torch.Tensor, ...] = ()
        self.pace, self.waits = _RefoldPace(), False

    def __deepcopy__(self, memo: Any) -> "_RefoldCache":
        return _RefoldCache()

    def __reduce__(self) -> tuple[Any, ...]:
        return _RefoldCache, ()

    def compute(
        self,
        sources: Sequence[torch.Tensor],
        seen: tuple[Any, ...],
        changed: list[bool],
        recipes: Sequence[tuple[Callable[..., torch.Tensor], tuple[int, ...]]],
        where: torch.device,
    ) -> None:
        """Compute the values whose sources changed.

        A recipe is (function, indices) into the sources and the values before it. A value keeps its
        place in memory, where a CUDA graph may read it.
        """
        known, values, changed = [t.detach() for t in sources], [], list(changed)
        # a device that stands anyway is not set: it would be looked for at each operation
        placed = torch.no_grad() if torch.get_default_device() == where else where
        with torch.inference_mode(False), torch.no_grad(), placed:
            for k, (function, indices) in enumerate(recipes):
                old = self.values[k] if len(self.values) == len(recipes) else None
                if old is None or any(changed[i] for i in indices):
                    value = function(*(known[i] for i in indices))
                    kept = function not in _REFOLD_READ and old is not None
                    if kept and old is not None and _refold_same_form(old, value):
                        value = old.copy_(value)
                    changed.append(True)
                else:
                    value = old
                    changed.append(False)
                known.append(value)
                values.append(value)
        self.sources, self.seen, self.values = tuple(sources), seen, tuple(values)
        anew = sum(changed[len(sources) :])
        _refold_cache_log.info("refold: %d of %d folded parameters computed", anew, len(values))


def _refold_same_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def _refold_copied(
    sources: Sequence[torch.Tensor],
    recipes: Sequence[tuple[Callable[..., torch.Tensor], tuple[int, ...]]],
) -> list[int]:
    """The indices of the sources of which a copy or a fold is kept; others are read as they are."""
    roots: list[set[int]] = [{i} for i in range(len(sources))]
    live: list[bool] = [True] * len(sources)
    found: set[int] = set()
    for function, indices in recipes:
        below = set().union(*(roots[i] for i in indices))
        same = function in _REFOLD_READ and live[indices[0]]
        same = same and (
            function is not torch.Tensor.contiguous or sources[indices[0]].is_contiguous()
        )
        if not same:
            found |= below
        roots.append(below)
        live.append(False)
    return sorted(found)


def _refold_examined(
    model: torch.nn.Module,
    caches: dict[str, Any],
    name: str,
    file: Any,
    arguments: Sequence[torch.Tensor],
) -> Any:
    """The cache for a call whose arguments suit a mode's kernels; or why the original is taken."""
    mode = file.modes[name]
    device = arguments[0].get_device()
    reason = _refold_context(device, file.kind)
    if reason is not None:
        return reason
    recorded = _refold_grad_enabled()
    if recorded and _refold_wants_gradients(model, mode, arguments):
        return "gradients are wanted"
    cache = _refold_ready(model, caches, mode, file, device)
    calm = type(cache) is _RefoldCache and cache.stepped is None
    if calm and mode["repeats"] and not recorded:
        cache.fits = _refold_like(*arguments)
    return cache


def _refold_ready(
    model: torch.nn.Module, caches: dict[str, Any], mode: dict[str, Any], file: Any, device: int
) -> Any:
    """The cache of a mode, after what has changed since the last call; or why there is none.

    file: the tables and functions of the emitted file, see `_RefoldFile`.
    """
    cache = caches.get(mode["name"])
    if cache is not None and cache.device == device:
        same = file.kernels.unchanged(*cache.watched) and cache.laid(*cache.tensors)
        if same and (cache.stepped is None or (not cache.stepped and _refold_captures(device))):
            return cache if cache.reason is None else cache.reason
        for structure in cache.refused:
            if structure.holds(model):
                _refold_leave(cache)
                return structure.difference
        found = file.kernels.altered(cache.watched[-1])
        if found in _REFOLD_SAID:
            past = found == _REFOLD_AUDIT and cache.waits  # behind the last call that was fast
            if cache.doubt != 2 and not past:  # else what the last call computed was right
                _refold_log.error(f"refold: {_REFOLD_SAID[found]}", ", ".join(cache.audited))
            _refold_doubt(caches, int(not _refold_is_readable(device)))  # others saw nothing
        if found in _REFOLD_SAID or cache.doubt == 2:
            cache.doubt = 0
        elif cache.pace.puts_off(lambda: _refold_held_now(cache, file, found, model, mode)):
            _refold_leave(cache)
            cache.waits = True
            if not _refold_is_readable(device):
                cache.seen, cache.doubt = (), 1
            return _REFOLD_PUT_OFF
    return _refold_renew(model, caches, mode, file, device)


def _refold_held_now(
    cache: _RefoldCache, file: Any, found: int, model: torch.nn.Module, mode: dict[str, Any]
) -> Any:
    """What tells most writes: by it calls that are put off see whether parameters stay. found: what
    `altered` said. Where parameters were assigned, the first of them stands for all."""
    if found in _REFOLD_OF_TENSORS:
        return file.kernels.written(cache.watched and cache.watched[-1])
    t = _refold_tensor(model, mode["tensors"][0][0]) if mode["tensors"] else None
    if not isinstance(t, torch.Tensor) or t.is_inference():
        return (id(t),)
    return id(t), t._version


def _refold_leave(cache: _RefoldCache) -> None:
    """The original is taken for a while: a cache stays as it is, and is compared as a whole with
    what its sources hold when its structure is there again."""
    cache.stepped, cache.fits = cache.stepped or set(), _refold_unlike


def _refold_renew(
    model: torch.nn.Module, caches: dict[str, Any], mode: dict[str, Any], file: Any, device: int
) -> Any:
    """Look at everything anew and compute what has changed: a cache, or why there is none.

    What is looked at before every call is noted first: a change while this runs is seen then.
    """
    began = time.perf_counter()
    old = caches.get(mode["name"])
    known: _RefoldStructure | None = None if old is None else old.structure
    structure = known
    if structure is None or not structure.holds(model):
        structure = _RefoldStructure(model, file, mode)
    rows = structure.rows
    leaves = structure.difference is not None and _refold_is_readable(device)
    if old and known and leaves and _refold_differ_plainly(known.rows, rows):  # it may come back
        old.refused = (structure, *old.refused)[:_REFOLD_REFUSED]
        _refold_leave(old)
        old.pace.renewed(began)
        return structure.difference
    tensors = [_refold_tensor(model, path) for path, _, _ in mode["tensors"]]
    sources, states = tensors[: mode["sources"]], tensors[mode["sources"] :]
    counters = [_refold_tensor(model, path) for _, path in mode["counters"]]
    reason = structure.difference or _refold_tensors_misfit(tensors, states, mode, device)
    usable = [t for t in tensors if isinstance(t, torch.Tensor)]
    stores = tuple(weakref.ref(t.untyped_storage()) for t in usable if t.layout is torch.strided)
    contents: list[int] = []
    copied: list[int] = []
    if reason is None:
        copied = _refold_copied(sources, mode["recipes"])
        copied = [i for i in copied if _refold_extent(sources[i])]
        for i in copied if _refold_is_readable(device) else ():
            contents += (sources[i].data_ptr(), _refold_extent(sources[i]))
    # what is read as it lies may be written; of what is not fit to be read nobody knows why
    read = set(range(len(sources))) - set(copied) if reason is None else set[int]()
    watched: list[Any] = []
    for i, t in enumerate(tensors):
        if isinstance(t, torch.Tensor):
            watched += (t, i < len(sources) and i not in read and not t.is_inference())
    counted = [t for (i, _), t in zip(mode["counters"], counters, strict=True) if i not in read]
    for t in counted:
        if isinstance(t, torch.Tensor):
            watched += (t, not t.is_inference())
    cache = old
    if cache is None or cache.device != device:
        cache = _RefoldCache(device)
    try:
        transient = file.unsupported(device)
        if transient is not None:
            return transient
        fixed = (rows.dicts, rows.types, rows.kinds, tuple(watched), stores, tuple(contents))
        memory = file.kernels.watch(*fixed, _REFOLD_LOOKED_THROUGH)
        if old and structure is known and not structure.holds(model):  # another thread changed it
            old.structure = None
            return _refold_renew(model, caches, mode, file, device)
        if reason is None:
            versions = [None if t.is_inference() else t._version for t in (*sources, *counters)]
            seen = tuple(
                (v, t.data_ptr(), t.stride(), t.shape)
                for t, v in zip(sources, versions, strict=False)
            )
            counts = versions[len(sources) :]
            changed = _refold_changed(cache, file, memory, sources, (seen, counts), mode, copied)
            if old is None and copied and not contents:  # nobody knows what this finds
                _refold_doubt(caches, 1)
            cache.compute(sources, (seen, counts), changed, mode["recipes"], file.place(device))
            if copied and not contents:
                # in doubt what differs is still to be told to the other modes, by the next call
                looked = [(sources[i], changed[i] and cache.doubt == 0) for i in copied]
                _refold_look_at(cache, file.kernels, memory, looked, file.place(device))
            file.folds_ready(cache)
    except RuntimeError as error:
        caches.pop(mode["name"], None)  # some of its values may be new, others not
        said = str(error).strip().splitlines() or [type(error).__name__]
        reason = f"the folded parameters could not be computed ({said[0]})"
        if isinstance(error, torch.OutOfMemoryError):
            return reason
        cache = _RefoldCache(device)
    cache.audited = tuple(mode["tensors"][i][0] for i in copied)
    kib = sum(-(-n // 1024) for n in contents[1::2] if n > _REFOLD_WHOLE)
    cache.audit_calls = -(-kib // _REFOLD_LOOKED_THROUGH)
    cache.tensors, cache.laid = tuple(usable), _refold_like(*usable)
    cache.states, cache.waits = tuple(states), False
    cache.copies = tuple(sources[i] for i in copied)
    if reason is not None:  # what the sources hold is not looked at meanwhile
        cache.seen, cache.doubt = (), int(not _refold_is_readable(device))
    else:
        cache.doubt = min(2 * cache.doubt, 2)
    if structure is not known:  # of others only those that hold what this one holds
        others = cache.refused if structure.difference is None else ()
        cache.refused = tuple(o for o in others if _refold_differ_plainly(o.rows, rows))
    cache.structure = structure if structure.difference is None else None
    cache.reason, cache.fits = reason, _refold_unlike
    cache.stepped = set() if cache.doubt == 2 else None
    _refold_follow_optimizers(cache)
    # last: threads that find it take the values
    cache.watched = (*fixed, rows.cells, rows.alike, memory)
    caches[mode["name"]] = cache
    cache.pace.renewed(began)
    return cache if reason is None else reason


def _refold_changed(
    cache: _RefoldCache,
    file: Any,
    memory: bytearray,
    sources: Sequence[torch.Tensor],
    seen: tuple[Any, ...],
    mode: dict[str, Any],
    copied: list[int],
) -> list[bool]:
    """For each source whether it may differ from what the cache's values were computed from."""
    if len(cache.sources) != len(sources) or not cache.seen or cache.watched is None:
        return [True] * len(sources)
    (before, counts_before), (now, counts) = cache.seen, seen
    stepped = cache.stepped or set()
    stores = cache.watched[4]  # of the sources first, see _refold_renew
    changed = [
        a is not b or before[i] != now[i] or id(b) in stepped or stores[i]() is None
        for i, (a, b) in enumerate(zip(cache.sources, sources, strict=True))
    ]
    for (i, _), then, count in zip(mode["counters"], counts_before, counts, strict=True):
        changed[i] = changed[i] or then != count
    if copied and cache.watched[5]:
        differing = file.kernels.differing(cache.watched[-1], memory)
        if differing is None:
            return [True] * len(sources)
        for i, differs in zip(copied, differing, strict=True):
            changed[i] = changed[i] or differs
    return changed


def _refold_wants_gradients(
    model: torch.nn.Module, mode: dict[str, Any], arguments: Sequence[torch.Tensor]
) -> bool:
    """True if autograd would record the original forward: asked before anything is folded."""
    if any(t.requires_grad for t in arguments):
        return True
    sources = [path for path, _, _ in mode["tensors"][: mode["sources"]]]
    for path in (*sources, *mode["unread"]):
        if getattr(_refold_tensor(model, path), "requires_grad", False):
            return True
    return False


# The tables of one emitted file as the runtime reads them: by place instead of by name.


def _refold_by_name(kind: Any) -> str:
    return str(getattr(kind, "__qualname__", None) or kind.__name__)  # of a module its name


class _RefoldFile:
    """One emitted file: its tables, and the functions that its kernels' part defines.

    kind: the kernels' type of device. names: the file's globals. modes: by name, `_refold_mode`.
    """

    def __init__(self, kind: str, names: dict[str, Any]) -> None:
        self.kind, self.kernels = kind, names["_refold_kernels"]
        self.unsupported: Callable[[int], str | None] = names["_refold_unsupported_device"]
        self.folds_ready: Callable[[Any], None] = names["_refold_folds_ready"]
        self.look_alone: Callable[[int], None] | None = names.get("_refold_look_alone")
        self.modules: Sequence[Any] = names["_REFOLD_MODULES"]
        self.tied: Sequence[Sequence[str]] = names.get("_REFOLD_TIED", ())
        self.numbers: dict[str, Any] = names.get("_REFOLD_GLOBALS", {})
        self.others: dict[str, Sequence[str]] = names.get("_REFOLD_OTHERS", {})
        self.varied: Sequence[tuple[Any, ...]] = names.get("_REFOLD_VARIED", ())
        self.names = {path: tuple(settings) for path, _, _, settings in self.modules}
        self.modes = {name: _refold_mode(name, names, self) for name in names["_REFOLD_MODES"]}
        self.assigned = frozenset(p for mode in self.modes.values() for p in mode["assigned"])
        self.known = _refold_reach(_refold_module_classes(names)).entries
        self.baselines: dict[frozenset[type], _RefoldReached] = {}

    def reached(self, model: torch.nn.Module) -> _RefoldReached:
        """What forward reads of classes and globals, as it was when a model of these classes was
        first met, or when the file was imported."""
        kinds = frozenset(_refold_kinds(model))
        if kinds not in self.baselines:
            if len(self.baselines) > 16:  # many structures: their first sight is not kept for ever
                self.baselines.clear()
            found = _refold_reach(sorted(kinds, key=_refold_by_name))
            found.entries = _refold_as_known(found.entries, self.known)
            self.known = self.known if self.baselines else {**found.entries, **self.known}
            self.baselines[kinds] = found
        return self.baselines[kinds]

    def difference(
        self, model: torch.nn.Module, reached: _RefoldReached, mode: dict[str, Any]
    ) -> str | None:
        tables = self.modules, mode["apart"], self.tied, self.numbers, self.others, self.assigned
        return _refold_difference(model, *tables, reached, self.varied)

    def place(self, device: int) -> torch.device:
        return torch.device("cpu") if device < 0 else torch.device(self.kind, device)


def _refold_mode(name: str, names: dict[str, Any], file: _RefoldFile) -> dict[str, Any]:
    """One row of `_REFOLD_MODES`.

    tensors: (path, shape, dtype) of what is read, then of what is written. sources: how many are
    read. recipes: of each value (function, places of its arguments among what is read and the
    values before it). counters: of running statistics, which PyTorch's kernels write uncounted,
    (place, path of the batch norm's counter, which is counted). unread: parameters that cannot
    change the result. assigned: attributes that forward sets. strides: of parameters, where draws
    follow from them. repeats: whether a call is told to be like the last one by its tensors.
    apart: the modules that are in the other mode than the model, or None where nothing asks.
    """
    row = names["_REFOLD_MODES"][name]
    given_row: dict[str, Any] = row["values"]
    made: dict[str, tuple[Any, ...]] = {
        value: how if type(how) is tuple else (how,) for value, how in given_row.items()
    }
    sources: dict[str, int] = {}
    for how, *given in made.values():
        for path in given if callable(how) else () if given else (how,):
            sources.setdefault(path, len(sources))
    values = {value: len(sources) + i for i, value in enumerate(made)}
    recipes: list[tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = []
    for how, *given in made.values():
        if callable(how):
            recipes.append((how, tuple(sources[path] for path in given)))
        elif given:  # a value in another form
            recipes.append((names[f"_refold_{how}"], (values[given[0]],)))
        else:  # a parameter as it is
            recipes.append((torch.Tensor.contiguous, (sources[how],)))
    held = {path: names_held.split() for path, _, names_held, _ in file.modules}
    counters = []
    for path, i in sources.items():
        parent, dot, last = path.rpartition(".")
        statistics = last in ("running_mean", "running_var")
        if statistics and "num_batches_tracked" in held.get(parent, ()):
            counters.append((i, f"{parent}{dot}num_batches_tracked"))
    written = row.get("writes", ())
    return {
        "name": name,
        "tensors": tuple((p, *names["_REFOLD_TENSORS"][p]) for p in (*sources, *written)),
        "sources": len(sources),
        "recipes": tuple(recipes),
        "counters": tuple(counters),
        "unread": row.get("unread", ()),
        "assigned": row.get("assigned", ()),
        "strides": row.get("strides", {}),
        "repeats": row.get("repeats", True),
        "apart": row.get("apart", ()),
    }


# Containers that a fast call gives, put together without running their constructors.


def _refold_made(kind: Any, items: Any, attributes: Any, same: Any = ()) -> Any:
    """An instance of the class `kind` with these items and attributes.

    A constructor might change what it is given, which the original's has done once. same: names of
    items that are attributes, too.
    """
    made = kind.__new__(kind)
    for base in kind.__mro__:  # whatever the class itself does with an item has been done
        if base in (OrderedDict, dict):
            for key, value in items.items():
                base.__setitem__(made, key, value)
            break
    for name in same:
        object.__setattr__(made, name, items[name])
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def _refold_prepare(self, rf_caches, rf_mode, x):
    """What the kernels read of the parameters; or, as text, why the original forward is taken."""
    rf_cache = rf_caches.get(rf_mode)
    try:
        if rf_cache is not None and x.is_nested is False and rf_cache.fits(x) and not (
            _refold_grad_enabled() or _refold_forward_ad._current_level >= 0
            or _refold_function_modes() and _refold_is_watched(rf_cache.device, "cuda")
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
_refold_file = _RefoldFile("cuda", globals())


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
