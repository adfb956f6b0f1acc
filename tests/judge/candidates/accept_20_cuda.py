"""A CUDA kernel, compiled at import, launched on the caller's stream. Needs CUDA."""

import ctypes

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void kernel(const float *x, const float *w, const float *b, float *y, long N, long K,
                       long M) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i >= N * M) return;
  const long n = i / M, m = i % M;
  double sum = b[m];
  for (long k = 0; k < K; k++) sum += double(x[n * K + k]) * w[m * K + k];
  y[i] = float(0.5 * sum * (1.0 + erf(sum * 0.70710678118654752440)));
}
extern "C" int run(const float *x, const float *w, const float *b, float *y, long N, long K, long M,
                   void *stream) {
  kernel<<<(N * M + 128) / 128, 128, 0, (cudaStream_t)stream>>>(x, w, b, y, N, K, M);
  return cudaGetLastError();
}
"""
LIBRARY = None


def library():
    global LIBRARY
    if LIBRARY is None:
        path = load_inline(
            "refold_test_accept_20_cuda",
            "",
            SOURCE,
            is_python_module=False,
            no_implicit_headers=True,
        )
        LIBRARY = ctypes.CDLL(path)
    return LIBRARY


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        library()

    def forward(self, x):
        odd = x.dim() != 2 or x.shape[1] != self.linear.in_features or not x.numel()
        if odd or torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.gelu(self.linear(x))
        x, w, b = x.contiguous(), self.linear.weight.contiguous(), self.linear.bias
        y = torch.empty(x.shape[0], w.shape[0], device=x.device)
        code = library().run(
            *(ctypes.c_void_p(t.data_ptr()) for t in (x, w, b, y)),
            *(ctypes.c_long(s) for s in (*x.shape, w.shape[0])),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return y
