// Everything that templates ask of vectors, on arrays: one function, so that two libraries can be compared bit by bit.
namespace rf {

// x, y: n numbers each; out: kResults * n, a result of all numbers after the other.
static void every(const Real* x, const Real* y, Real* out, long n) {
  for (long i = 0; i < n; i += kLanes) {
    const long count = std::min(kLanes, n - i);
    const Vec a = Vec::loadu(x + i, count), b = Vec::loadu(y + i, count);
    long at = 0;
    auto put = [&](Vec v) { v.store(out + at++ * n + i, count); };
    for (Vec v : {exp(a), expm1(a), log(a), log1p(a), sqrt(a), sin(a), cos(a), tanh(a), abs(a), floor(a)}) put(v);
    for (Vec v : {ceil(a), trunc(a), erf(a), round(a), rsqrt(a), -a, relu(a), sigmoid(a), pow(a, b)}) put(v);
    for (Vec v : {a + b, a - b, a * b, a / b, maximum(a, b), minimum(a, b), fmadd(a, b, a), Real(2) / a}) put(v);
    for (Vec v : {a == b, a != b, a < b, a <= b, a > b, a >= b, a < Real(1), (a < b) & (b > a), (a < b) | (b < a)})
      put(where(v, a, b));
    for (Vec v : {interleave2(a, b).first, interleave2(a, b).second, deinterleave2(a, b).first}) put(v);
    for (Vec v : {deinterleave2(a, b).second, Vec::set(a, b, count), Vec(), Vec(3), (a < b) ^ (b > a), Vec(total(a))}) put(v);
  }
}
constexpr long kResults = 10 + 9 + 8 + 9 + 3 + 6;

}  // namespace rf

RF_FUNCTION(results, (), rf::kResults)
RF_KERNEL(every, (const rf::Real* x, const rf::Real* y, rf::Real* out, long n), rf::every(x, y, out, n))
