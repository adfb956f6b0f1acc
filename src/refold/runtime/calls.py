"""What every fast call asks before its kernels run, and what a call that cannot be fast does."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

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
