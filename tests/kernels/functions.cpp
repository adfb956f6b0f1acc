// Functions of lanes on arrays: results of all numbers, one function after the other.
namespace rf {

static void functions(const Real* x, Real* out, long n) {
  for (long i = 0; i < n; i += kLanes) {
    const long count = std::min(kLanes, n - i);
    const Vec a = Vec::loadu(x + i, count);
    long at = 0;
    for (Vec v : {exp(a), expm1(a), log1p(a), tanh(a), erf(a), sigmoid(a), mish(a), gelu(a)})
      v.store(out + at++ * n + i, count);
  }
}

}  // namespace rf

RF_KERNEL(functions, (const rf::Real* x, rf::Real* out, long n), rf::functions(x, out, n))
