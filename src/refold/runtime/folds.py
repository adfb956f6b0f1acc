"""Folded parameters: computed from parameters alone, kept, and computed anew when these change.

By what a change is seen (docs/decisions/0011): PyTorch's counters of writes, addresses, the module
tree, batch norm's own counter, the end of an optimizer's step, and on the CPU what the memory of
the parameters holds.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refold.runtime.calls import (
    _REFOLD_PUT_OFF,
    _refold_cache_log,
    _refold_context,
    _refold_grad_enabled,
    _refold_like,
    _refold_log,
    _refold_tensors_misfit,
    _refold_unlike,
)
from refold.runtime.look import (
    _refold_captures,
    _refold_doubt,
    _refold_extent,
    _refold_is_readable,
    _refold_look_at,
)
from refold.runtime.pace import _RefoldPace
from refold.runtime.stepped import _refold_follow_optimizers
from refold.runtime.structure import (
    _refold_differ_plainly,
    _refold_tensor,
    _RefoldStructure,
)

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
