"""A C++ kernel, compiled at import."""

import ctypes

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
extern "C" void run(float *x, const float *w, const float *b, float *y, long N, long K, long M) {
  for (long n = 0; n < N; n++)
    for (long m = 0; m < M; m++) {
      double sum = b[m];
      for (long k = 0; k < K; k++) sum += double(x[n * K + k]) * w[m * K + k];
      y[n * M + m] = float(0.5 * sum * (1.0 + std::erf(sum * 0.70710678118654752440)));
    }
}
"""
# no header of PyTorch: compiled in a second; called by address
PATH = load_inline(
    "refold_test_accept_18_native",
    SOURCE,
    functions=None,
    extra_cflags=["-O2"],
    is_python_module=False,
    no_implicit_headers=True,
)
LIBRARY = ctypes.CDLL(PATH)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.gelu(self.linear(x))
        w, b = self.linear.weight.contiguous(), self.linear.bias
        if x.dim() != 2 or x.shape[1] != w.shape[1]:
            return F.gelu(self.linear(x))
        x = x.contiguous()
        y = torch.empty(x.shape[0], w.shape[0])
        LIBRARY.run(
            *(ctypes.c_void_p(t.data_ptr()) for t in (x, w, b, y)),
            *(ctypes.c_long(s) for s in (*x.shape, w.shape[0])),
        )
        return y
