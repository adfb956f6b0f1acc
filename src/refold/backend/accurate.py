"""How accurate our function of a graph is beside eager's, measured before it is trusted.

Both are run on made-up arguments, and so is the graph in float64: each of its calls, which were
read by nobody but PyTorch. The kernels that will run are what is measured. The bars are those of
`refold.optimize` (docs/accuracy.md).
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.accuracy.errors import AGAIN, FACTOR, FACTOR_TF32, Error, error_of, meets, ratio_of
from refold.backend.arguments import KINDS, AsRecorded, Forward, drawn, laid, places_of
from refold.backend.exact import in_float64
from refold.backend.loaded import Boxed
from refold.capture.aot import COPY, results_of

SECONDS = 5.0  # after so many no further kind of values is begun
NOISE = 4.0  # how many times eager's error where eager has nothing but error
LUCK = 4.0  # the bar of a result of n elements is higher by this over the root of n: deviations
# what attention gives beside numbers: where a generator stood, which has no value where nothing is
# dropped; what debuggers ask for
STATES = frozenset({"philox_seed", "philox_offset", "rng_state", "unused", "debug_attn_mask"})
FINER = 2.0**-29  # an error of float64 beside the same one of float32
OTHERS = 0.01  # the part of whole numbers, or of bits, that may differ: where a value is rounded


class Unmeasured(Exception):
    """Nothing can be measured; the text says why."""


@dataclass(frozen=True)
class Measured:
    """ratio: the largest of our errors over eager's, each plus half a unit in the last place, of
    any result. where: of which result on what values. good: whether the bar is met."""

    ratio: float
    where: str
    good: bool

    def __str__(self) -> str:
        return f"{self.ratio:.3g} times eager's error against float64 ({self.where})"


def measured(
    module: torch.fx.GraphModule,
    ours: Boxed,
    parameters: Collection[str] = (),
    *,
    moved: bool = False,
    tf32: bool | None = None,
    forward: Forward | None = None,
) -> Measured:
    """Run a graph by our function, by PyTorch, and in float64.

    parameters: the placeholders that are parameters or buffers. moved: also on arguments, other
    than these, that are moved by a thousand deviations. tf32: whether eager's products of float32
    on a GPU are by TF32; by default as PyTorch's flags say. forward: of which the graph is the
    backward, where it is known. Random states are left as they were.

    Raises Unmeasured where there is no memory for it, or a call cannot be made in float64.
    """
    made = _Measuring(module, ours, frozenset(parameters), tf32, forward)
    names = KINDS if moved else KINDS[:-1]
    start, best = time.perf_counter(), Measured(0.0, "", True)
    for name in names:
        if best.where and time.perf_counter() - start > SECONDS:
            break
        found = made.on(name)
        if not found.good:
            return found
        best = max(best, found, key=lambda m: m.ratio)
    return best


class _Measuring:
    def __init__(
        self,
        module: torch.fx.GraphModule,
        ours: Boxed,
        parameters: frozenset[str],
        tf32: bool | None,
        forward: Forward | None,
    ) -> None:
        self.module, self.ours, self.parameters, self.tf32 = module, ours, parameters, tf32
        self.forward, self.places = forward, places_of(module)
        written = {n.args[0] for n in module.graph.nodes if n.target is COPY}
        self.written = [i for i, n in enumerate(self.places) if n in written]
        results = results_of(module.graph)
        self.states = [i for i, n in enumerate(results) if _is_state(n)]
        self.names = [f"result {i}" for i in range(len(results))]
        self.names += [f"what is written to {self.places[i].name}" for i in self.written]
        metas = [n.meta["val"] for n in self.places]
        floats = [m.dtype for m in metas if isinstance(m, torch.Tensor) and m.is_floating_point()]
        self.wide = torch.float64 in floats
        on_gpu = any(isinstance(m, torch.Tensor) and m.device.type == "cuda" for m in metas)
        fast = tf32 if tf32 is not None else torch.get_float32_matmul_precision() != "highest"
        self.bar = FACTOR_TF32 if on_gpu and fast else FACTOR

    def on(self, name: str) -> Measured:
        """On one kind of values, drawn again where the bar is not met: eager may be lucky."""
        draws: list[list[_Result]] = []
        for draw in range(1 + AGAIN):
            draws.append(self._results(name, draw))
            by_result = [[[r.error] for r in drawn] for drawn in zip(*draws, strict=True)]
            counts = [sum(r.count for r in drawn) for drawn in zip(*draws, strict=True)]
            good = [
                meets(e, self.bar * (1 + LUCK / max(n, 1) ** 0.5), True, NOISE)
                for e, n in zip(by_result, counts, strict=True)
            ]
            if all(good):
                break
        ratios = [ratio_of(e) for e in by_result]
        worst = max(range(len(ratios)), key=lambda i: (not good[i], ratios[i]))
        return Measured(ratios[worst], f"{self.names[worst]}, {name}", all(good))

    def _results(self, name: str, draw: int) -> list[_Result]:
        try:
            flats = drawn(self.module, self.parameters, name, draw, self.forward)
            # one after the other, and what is large waits in the host's memory
            truth = [_away(v) for v in self._run(_Exact(self.module).run, flats, torch.float64)]
            with _products(self.tf32):
                eager = self._run(AsRecorded(self.module).run, flats)
            single: list[Any] = [None] * len(eager)
            if self.wide:  # of float64 there is no wider truth
                single = self._run(_Single(self.module).run, flats, torch.float32)
        except (RuntimeError, NotImplementedError, IndexError) as error:  # out of memory, above all
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Unmeasured(said) from error
        try:
            made = self._run(lambda *args: self.ours([*args]), flats)
            for i in self.states:
                made[i] = eager[i] = truth[i]
            return [_result(*four) for four in zip(eager, made, truth, single, strict=True)]
        except torch.OutOfMemoryError as error:
            raise Unmeasured("there is not enough memory") from error

    def _run(
        self, run: Callable[..., Any], flats: Sequence[Any], dtype: torch.dtype | None = None
    ) -> list[Any]:
        """Results, and what has been written to arguments, of a side with memory of its own."""
        args = [laid(f, n.meta["val"], dtype) for f, n in zip(flats, self.places, strict=True)]
        results = run(*args)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        return results + [args[i] for i in self.written]


def _is_state(result: Any) -> bool:
    """Whether a result of a graph is one of STATES, by the schema of the call that gives it."""
    if not isinstance(result, torch.fx.Node) or result.target is not operator.getitem:
        return False
    call, index = result.args
    op = call.target if isinstance(call, torch.fx.Node) else None
    if not isinstance(op, torch._ops.OpOverload) or not isinstance(index, int):
        return False
    returns = op._schema.returns  # a list of tensors is one
    return index < len(returns) and returns[index].name in STATES


class _Exact(AsRecorded):
    """Each call in float64; one that neither PyTorch nor `exact.py` has in float64 is made in
    float32. Whole numbers that
    follow from no argument are those of the graph's own dtypes: a table of buckets by logarithms is
    what the model computes with, not what it should have been."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.recorded: dict[torch.fx.Node, Any] = {}  # what follows from no argument

    def run_node(self, n: torch.fx.Node) -> Any:
        known, is_op = self.recorded, isinstance(n.target, torch._ops.OpOverload)
        follows = is_op and all(i in known for i in n.all_input_nodes)
        if follows and not _is_drawn(n.target):
            args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), known.__getitem__)
            call: Any = n.target
            known[n] = call(*args, **kwargs)
            if isinstance(known[n], torch.Tensor) and not known[n].is_floating_point():
                return known[n]
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.aten.view.dtype:
            raise Unmeasured("it takes bits for what they are not")
        args, kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
        try:
            made = target(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            if (exact := in_float64(target, args, kwargs)) is not None:
                return exact
            args, kwargs = pytree.tree_map(_narrow, (args, kwargs))
            made = target(*args, **kwargs)
        return pytree.tree_map(_wide, made)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _wide(super().get_attr(target, args, kwargs))


class _Single(AsRecorded):
    """Each call of a graph of float64 in float32."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(_narrow, (args, kwargs))
        return pytree.tree_map(_narrow, target(*args, **kwargs))

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _narrow(super().get_attr(target, args, kwargs))


def _is_drawn(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags or op._schema.is_mutable


_NARROW = (torch.float16, torch.bfloat16, torch.float32)


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def _wide(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def _narrow(value: Any) -> Any:
    if value is torch.float64:
        return torch.float32
    is_wide = isinstance(value, torch.Tensor) and value.dtype is torch.float64
    return value.float() if is_wide else value


def _away(value: Any) -> Any:
    """In the host's memory, where a quarter of the GPU's is not free for it."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cuda":
        return value
    free = torch.cuda.mem_get_info(value.device)[0]
    return value.cpu() if 4 * value.numel() * value.element_size() > free else value


@dataclass(frozen=True)
class _Result:
    """The errors of one result, and of how many elements."""

    error: Error
    count: int


def _result(eager: Any, made: Any, truth: Any, single: Any = None) -> _Result:
    """What is not a number on one of PyTorch's sides says nothing: arguments that are made up may
    be out of a function's domain. single: the same in float32, which tells the error of float64."""
    if not isinstance(eager, torch.Tensor):
        return _Result(Error(0.0, 0.0, 0.0, 1.0, made != eager), 1)
    if made.shape != eager.shape or made.dtype != eager.dtype:
        return _Result(Error(0.0, 0.0, 0.0, 1.0, True), eager.numel())
    truth = truth.to(eager.device)
    if not eager.is_floating_point():
        own, mine = (_part(v != truth) for v in (eager, made))
        return _Result(Error(0.0, 0.0, 0.0, 1.0, mine > 2 * own + OTHERS), eager.numel())
    known = ~(eager.isnan() | truth.isnan())
    rough = single if eager.dtype is torch.float64 and isinstance(single, torch.Tensor) else None
    if not bool(known.all()):
        eager, made, truth = eager[known], made[known], truth[known]
        rough = None if rough is None else rough[known]
    error = error_of(eager, made, truth)
    if rough is not None:
        own = error_of(rough.to(truth.device, torch.float64), made, truth).eager
        error.eager = max(error.eager, own * FINER**2)
    return _Result(error, eager.numel())


def _part(differs: torch.Tensor) -> float:
    return float(differs.float().mean()) if differs.numel() else 0.0


@contextlib.contextmanager
def _products(tf32: bool | None) -> Iterator[None]:
    """Products of float32 on a GPU by TF32, or not. What flags are kept as is part of the keys of
    PyTorch's caches: where nothing else is asked they are left alone."""
    flags: Any = torch.backends.cuda.matmul
    if tf32 is None or tf32 == flags.allow_tf32:
        yield
        return
    before = flags.allow_tf32
    flags.allow_tf32 = tf32
    try:
        yield
    finally:
        flags.allow_tf32 = before
