"""What a user would take instead of refold: torch.compile, and the usual settings of eager.

A baseline computes what the module computes, from the same parameters where it can, and is timed
alternately with eager and refold in one run (measure.py). One that cannot be had is named with its
reason and left out.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture import Example
from refold.measure import Run, Side, Timing, race

EAGER = "eager"
COMPILE = "torch.compile"
DEFAULT = (COMPILE,)
# of so many operations of PyTorch compilation takes more than about a minute
MOST_OPS = 500

_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Contest:
    """refold's times beside each baseline's, eager among them, taken in one run.

    timings: by the baseline's name; a timing of 0 pairs was taken over from an equal model.
    left_out: the reason for each baseline that could not be timed.
    """

    timings: Mapping[str, Timing]
    left_out: Mapping[str, str]

    @property
    def best(self) -> str:
        """The name of the fastest baseline: what refold has to beat."""
        return min(self.timings, key=lambda name: self.timings[name].ratio)

    @property
    def loss(self) -> str | None:
        """Which baseline is at least as fast as refold, and by how much; None if none is."""
        t, eager = self.timings[self.best], self.timings[EAGER]
        if t.ratio > 1.0:
            return None
        times = f"{t.other * 1e3:.3g} ms against {t.base * 1e3:.3g} ms, ratio {t.ratio:.2f}"
        if self.best != EAGER:
            times += f"; eager {eager.base * 1e3:.3g} ms"
        return f"the kernels were not faster than {self.best} ({times})"

    @property
    def eager_to_best(self) -> float:
        """How many times as fast as the best baseline eager is: what keeping the original gives."""
        return self.timings[self.best].base / self.timings[EAGER].base


Call = Example | Sequence[Any]  # positional arguments

# How many times as fast as eager a baseline was for a model, measured before in this process.
_RATIOS: dict[tuple[str, str], float] = {}


def contest(
    module: torch.nn.Module,
    fast: Run,
    inputs: Call,
    device: str,
    seconds: float,
    names: Sequence[str],
    graph: str | None = None,
    ops: int = 0,
) -> Contest:
    """Time `fast`, refold's call, against eager and the baselines `names`, in turns.

    graph: text of what the module computes, of `ops` operations; where it is given, what takes long
    to compile is left out, and what was compiled for an equal module is not compiled again.
    """
    known: dict[str, float] = {}
    key = "" if graph is None else _key(module, inputs, graph)
    if key:
        known = {n: _RATIOS[key, n] for n in names if (key, n) in _RATIOS}
    found = find([n for n in names if n not in known], module, inputs, ops if key else None)
    sides = {EAGER: Side(lambda: Example.of(inputs).call(module)), **found.sides}
    timings = race(sides, fast, device, seconds, until_clear=True)
    eager = timings[EAGER]
    if key:
        _RATIOS.update({(key, n): eager.base / timings[n].base for n in found.sides})
    for name, gain in known.items():
        low, middle, high = (value / gain for value in (eager.low, eager.ratio, eager.high))
        timings[name] = Timing(eager.base / gain, eager.other, low, middle, high, 0)
    return Contest(MappingProxyType(timings), found.left_out)


def _key(module: torch.nn.Module, inputs: Call, graph: str) -> str:
    """Equal for modules of one class that compute the same function of inputs of one layout."""
    cls = type(module)
    tensors = [v for v in Example.of(inputs).leaves() if isinstance(v, torch.Tensor)]
    laid = [(tuple(v.shape), v.stride(), v.dtype, v.device) for v in tensors]
    flags = torch.get_num_threads(), torch.get_float32_matmul_precision()
    return f"{cls.__module__}.{cls.__qualname__} {laid} {flags} {graph}"


@dataclass(frozen=True)
class Found:
    """sides: what is timed, by name. left_out: the reason for each that could not be had."""

    sides: Mapping[str, Side]
    left_out: Mapping[str, str]


def every(device: str | None = None) -> tuple[str, ...]:
    """The names of all baselines beside eager, of a device ("cpu" or "cuda") or of any."""
    return tuple(n for n, kind in _KINDS.items() if device is None or kind.device in ("", device))


def compiles(name: str) -> bool:
    """Is a baseline compiled first, which takes long?"""
    return _KINDS[name].compiles


def find(
    names: Sequence[str], module: torch.nn.Module, inputs: Call, ops: int | None = None
) -> Found:
    """Build and warm up the baselines of a module in its present mode, under the present flags.

    ops: how many operations the module has, where compilation is bounded; None for no bound.
    Raises ValueError for a name that is none of a baseline.
    """
    sides: dict[str, Side] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if name not in _KINDS:
            raise ValueError(f"no baseline {name!r}: there are {', '.join(_KINDS)}")
        kind = _KINDS[name]
        if kind.compiles and ops is not None and ops > MOST_OPS:
            left_out[name] = f"compiling {ops} operations takes long; ask for it by name"
            continue
        try:
            side = Side(kind.make(module, inputs), kind.setting)
            with _many_recompiles(), warnings.catch_warnings(), side.setting():
                warnings.simplefilter("ignore")
                side.run()
        except Exception as error:
            text = (str(error).strip().splitlines() or ["no message"])[0]
            left_out[name] = f"it raised {type(error).__name__}: {text}"
            continue
        sides[name] = side
    return Found(MappingProxyType(sides), MappingProxyType(left_out))


@contextmanager
def _many_recompiles() -> Iterator[None]:
    """Modes and backends compile one forward each; PyTorch would stop after a few, silently."""
    import torch._dynamo.config as config

    with config.patch(recompile_limit=256, accumulated_recompile_limit=4096):
        yield


@dataclass(frozen=True)
class _Kind:
    """make: a call to be timed, from a module and its inputs. device: the one that it is for.
    setting: flags under which it runs."""

    make: Callable[[torch.nn.Module, Call], Callable[[], object]]
    compiles: bool = False
    device: str = ""
    setting: Callable[[], Any] = nullcontext


def _compiled(
    mode: str | None = None,
) -> Callable[[torch.nn.Module, Call], Callable[[], object]]:
    def make(module: torch.nn.Module, inputs: Call) -> Callable[[], object]:
        compiled = torch.compile(module, mode=mode)
        return lambda: Example.of(inputs).call(compiled)

    return make


def _eager(module: torch.nn.Module, inputs: Call) -> Callable[[], object]:
    return lambda: Example.of(inputs).call(module)


def in_channels_last(module: torch.nn.Module, inputs: Call) -> tuple[torch.nn.Module, Example]:
    """A copy of a module of convolutions, and its inputs, in channels-last memory.

    Raises ValueError where there is no tensor of four or five dimensions to lay out so.
    """
    ranks = {p.dim() for p in module.parameters()} & _LAYOUTS.keys()
    images = [v for v in Example.of(inputs).leaves() if isinstance(v, torch.Tensor)]
    if not ranks or not any(v.dim() in _LAYOUTS for v in images):
        raise ValueError("the model has no convolution of images")

    def laid(v: torch.Tensor) -> torch.Tensor:
        return v.contiguous(memory_format=_LAYOUTS[v.dim()]) if v.dim() in _LAYOUTS else v

    twin: Any = copy.deepcopy(module)
    for rank in ranks:
        twin = twin.to(memory_format=_LAYOUTS[rank])
    call = Example.of(inputs)
    args, kwargs = pytree.tree_map_only(torch.Tensor, laid, (call.args, dict(call.kwargs)))
    return twin, Example(args, kwargs)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        COMPILE: _Kind(_compiled(), compiles=True),
        "max-autotune": _Kind(_compiled("max-autotune"), compiles=True),
        "reduce-overhead": _Kind(_compiled("reduce-overhead"), compiles=True, device="cuda"),
        "channels-last": _Kind(lambda m, i: _eager(*in_channels_last(m, i))),
        "torch.compile channels-last": _Kind(
            lambda m, i: _compiled()(*in_channels_last(m, i)), compiles=True
        ),
        "cudnn.benchmark": _Kind(_eager, device="cuda", setting=_cudnn_benchmark),
    }
)
