"""Looks: a kernel of each call compares a few words of device memory with what they were.

The host cannot read a GPU's memory without waiting for the GPU. So the first kernel of a call does
(kernels/look.h), sets a flag in host memory, and the call after reads the flag: a write to a whole
parameter that nothing else shows is followed one call late. A call that takes the original starts a
kernel that only looks.
"""

from collections.abc import Callable
from typing import Any

import torch

from refold.runtime.calls import _refold_unlike

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
