"""Folded parameters are computed in float64 and rounded once: whether they fit what they become."""

import torch


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
