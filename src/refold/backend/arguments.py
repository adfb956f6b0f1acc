"""Arguments that are made up for a graph: to measure its error, and its time.

What a forward saves for its backward is computed by the forward, of arguments that are made up.
Drawn by themselves these numbers would not belong together: attention's gradient beside a sum of
exponentials that is not its scores' grows with each layer, and in the end nothing is finite. Our
kernels compute what is not finite once more, by slow arithmetic, which says nothing of real calls.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.accuracy.indices import check_indices
from refold.backend.graphs import size_of, sizes_of
from refold.backend.indices import bound, may_look_outside
from refold.backend.inductor import is_incoming
from refold.capture.aot import COPY, results_of

log = logging.getLogger("refold")

KINDS = ("normal values", "positive values", "moved values")
MOVED = 1e3  # deviations
SMALL = 2.0**-64  # of gradients that come in


@contextlib.contextmanager
def as_called() -> Iterator[None]:
    """Calls as they are once a graph is compiled.

    While AOTAutograd compiles, PyTorch asks Python about each operator before it is called, those
    that C++ calls as well. What launches many small kernels seemed half as fast as it is.
    """
    with (
        torch.utils._python_dispatch._disable_current_modes(),
        torch._C._DisablePythonDispatcher(),
        torch.no_grad(),
        torch._C._DisableAutocast(),
    ):
        yield


def places_of(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in module.graph.nodes if n.op == "placeholder"]


@dataclass(frozen=True)
class Forward:
    """The forward of a backward. parameters: the names of placeholders that are parameters or
    buffers."""

    module: torch.fx.GraphModule
    parameters: Collection[str]

    def saved(self, name: str, draw: int) -> dict[str, torch.Tensor]:
        """Its tensors on arguments that are made up, by their names in both graphs; none where it
        cannot be run. name, draw: as `drawn` has them."""
        places, results = places_of(self.module), results_of(self.module.graph)
        try:
            flats = drawn(self.module, self.parameters, name, draw)
            given = [_viewed(f, n.meta["val"]) for f, n in zip(flats, places, strict=True)]
            del flats
            cards = {v.get_device() for v in given if isinstance(v, torch.Tensor) and v.is_cuda}
            with torch.no_grad(), torch.random.fork_rng(sorted(cards)):
                torch.manual_seed(_seed(name, draw))
                made = AsRecorded(self.module).run(*given)
        except (RuntimeError, NotImplementedError, IndexError) as error:  # out of memory, above all
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            log.info("refold: a backward is measured on numbers drawn by themselves: %s", said)
            return {}
        pairs = zip(results, made, strict=True)
        return {
            node.name: value
            for node, value in pairs
            if isinstance(node, torch.fx.Node) and isinstance(value, torch.Tensor)
        }


def _seed(name: str, draw: int) -> int:
    return 1 + 10 * draw + KINDS.index(name)


def drawn(
    module: torch.fx.GraphModule,
    parameters: Collection[str],
    name: str,
    draw: int = 0,
    forward: Forward | None = None,
) -> list[Any]:
    """The memory of each placeholder's argument: numbers, in the order in which they lie.

    parameters: the names of placeholders that are parameters or buffers. name: one of KINDS. draw:
    which of several draws. forward: of which the graph is the backward, where it is known. Random
    states are left as they were.
    """
    seed = _seed(name, draw)
    draws: dict[torch.device, torch.Generator] = {}
    found: list[Any] = []
    saved: Mapping[str, torch.Tensor] = {} if forward is None else forward.saved(name, draw)
    for node in places_of(module):
        meta = node.meta["val"]
        if not isinstance(meta, torch.Tensor):
            found.append(size_of(meta) if isinstance(meta, torch.SymInt) else meta)
            continue
        value = saved.get(node.name)
        if value is not None and _is_like(value, meta):
            found.append(_memory(value, meta))
            continue
        if meta.device not in draws:
            draws[meta.device] = torch.Generator(meta.device).manual_seed(seed)
        shape, strides = sizes_of(meta.shape), sizes_of(meta.stride())
        count = 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        draw_on = draws[meta.device]
        if meta.dtype is torch.bool:
            found.append(torch.rand(count, device=meta.device, generator=draw_on) < 0.5)
        elif not meta.dtype.is_floating_point:
            # rows that are all the same would be normalised to nothing but rounding
            most = bound(node) if meta.dtype in (torch.int64, torch.int32) else 1
            numbers = torch.randint(most, (count,), device=meta.device, generator=draw_on)
            found.append(numbers.to(meta.dtype))
        else:
            flat = torch.randn(count, device=meta.device, generator=draw_on)
            found.append(_scaled(flat, node.name in parameters, name, shape).to(meta.dtype))
    return found


def _scaled(
    flat: torch.Tensor, is_parameter: bool, name: str, shape: Sequence[int]
) -> torch.Tensor:
    if is_parameter:
        # a weight about as modules begin with it, whichever way it is multiplied; of a vector,
        # which may be a variance, no sign
        inner = max(shape[0], math.prod(shape[1:])) if len(shape) > 1 else 0
        return flat * inner**-0.5 if inner else 0.5 + flat.abs().clamp(max=1.0)
    if name == "positive values":
        return 0.5 + flat.abs().clamp(max=1.0)
    return flat + MOVED if name == "moved values" else flat


def laid(flat: Any, meta: Any, dtype: torch.dtype | None = None) -> Any:
    """A tensor with memory of its own, laid out as the graph is given it. dtype: of its numbers."""
    if not isinstance(flat, torch.Tensor):
        return flat
    wide = dtype if dtype is not None and flat.is_floating_point() else flat.dtype
    return _viewed(flat.to(wide, copy=True), meta)


def _viewed(flat: Any, meta: Any) -> Any:
    if not isinstance(flat, torch.Tensor):
        return flat
    return flat.as_strided(sizes_of(meta.shape), sizes_of(meta.stride()))


def _is_like(value: torch.Tensor, meta: torch.Tensor) -> bool:
    return value.dtype is meta.dtype and tuple(value.shape) == tuple(sizes_of(meta.shape))


def _memory(value: torch.Tensor, meta: torch.Tensor) -> torch.Tensor:
    """The value's numbers as they lie where the graph is given it."""
    shape, strides = sizes_of(meta.shape), sizes_of(meta.stride())
    count = 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
    flat = torch.zeros(count if value.numel() else 0, dtype=value.dtype, device=value.device)
    for i, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and length > 1:  # several places of one number
            value = value.narrow(i, 0, 1)
    flat.as_strided(value.shape, strides).copy_(value)
    return flat


def examples(
    module: torch.fx.GraphModule, parameters: Collection[str], forward: Forward | None = None
) -> Iterator[list[Any]]:
    """Arguments of a graph, of one kind after the other; as `drawn` has them.

    A backward is linear in the gradients that come in. What was saved for it is made up, and may
    let them grow out of range: so they are small, too.
    """
    places = places_of(module)
    gradients = [(i, n.meta["val"]) for i, n in enumerate(places) if is_incoming(n)]
    incoming = [i for i, value in gradients if value.is_floating_point()]
    for name in KINDS[:-1]:
        for size in (1.0, SMALL) if incoming else (1.0,):
            flats = drawn(module, parameters, name, forward=forward)
            for i in incoming:
                flats[i] = flats[i] * size
            yield [_viewed(f, n.meta["val"]) for f, n in zip(flats, places, strict=True)]


def rehearse(module: torch.fx.GraphModule, given: Sequence[Any]) -> None:
    """Run a graph that may look outside of a tensor once as PyTorch has it, before compiled code
    does, which looks wherever numbers say. Raises IndexError where it would."""
    if may_look_outside(module.graph):
        written = {n.args[0] for n in module.graph.nodes if n.target is COPY}
        pairs = zip(places_of(module), given, strict=True)
        AsRecorded(module).run(*(v.clone() if n in written else v for n, v in pairs))


class AsRecorded(torch.fx.Interpreter):
    """What calls give, and what the graph is given, lies as it lay when the graph was made:
    libraries choose another layout for an image at times, and of that a view that follows cannot be
    taken. Raises IndexError before a call looks outside of a tensor."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "call_function":
            check_indices(n.target, *self.fetch_args_kwargs_from_env(n))
        made = super().run_node(n)
        if n.op not in ("call_function", "placeholder"):
            return made
        meta = n.meta.get("val")
        if isinstance(made, (list, tuple)) and isinstance(meta, (list, tuple)):
            return type(made)(map(_as_recorded, made, meta))
        return _as_recorded(made, meta)


def _as_recorded(made: Any, meta: Any) -> Any:
    if not isinstance(made, torch.Tensor) or not isinstance(meta, torch.Tensor):
        return made
    shape, strides = sizes_of(meta.shape), sizes_of(meta.stride())
    if tuple(made.shape) != tuple(shape) or 0 in strides:
        return made
    wide = [i for i, n in enumerate(shape) if n != 1]
    if all(made.stride(i) == strides[i] for i in wide):
        return made
    return torch.empty_strided(shape, strides, dtype=made.dtype, device=made.device).copy_(made)
