"""In a life: settings of PyTorch under which modules are called; each is put back behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from refold.judge.worker import clocks, values
from refold.judge.worker.mode import Mode


class _Functions(TorchFunctionMode):
    """Passes every function on, as one that counts or prints them does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Operators(Mode):  # type: ignore[no-untyped-call]
    """Passes every operator on, as one that counts their work does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Setting:
    """``on`` sets it and gives what it takes to put it back, which ``off`` is given; ``stands``:
    whether it is still set."""

    on: Callable[[], Any]
    off: Callable[[Any], None]
    stands: Callable[[], bool]


def _switch(get: Callable[[], bool], put: Callable[[bool], Any], value: bool) -> Setting:
    def on() -> bool:
        before = get()
        put(value)
        return before

    return Setting(on, put, lambda: get() is value)


def _mode(kind: type[Any], depth: Callable[[], int]) -> Setting:
    def on() -> Any:
        entered = kind()
        entered.__enter__()
        return entered

    return Setting(on, lambda entered: entered.__exit__(None, None, None), lambda: depth() > 0)


# By PyTorch's own functions below those of Python, which import its compiler or warn.
_ALGORITHMS = (
    torch._C._get_deterministic_algorithms,
    lambda value: torch._C._set_deterministic_algorithms(value, warn_only=False),
)
_ANOMALY = (torch.is_anomaly_enabled, torch.set_anomaly_enabled)
_ONEDNN = (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled)
_CUDNN = (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled)
LATER = "a day later"  # in a worker alone: the judge's own limits go by these clocks
SETTINGS: dict[str, Setting] = {
    "deterministic algorithms": _switch(*_ALGORITHMS, True),
    "detection of anomalies": _switch(*_ANOMALY, True),
    "oneDNN off": _switch(*_ONEDNN, False),
    "a mode of functions": _mode(_Functions, torch._C._len_torch_function_stack),
    LATER: Setting(list, clocks.put_back, clocks.moved),
    "a mode of operators": _mode(_Operators, torch._C._len_torch_dispatch_stack),
}
ON_CUDA: dict[str, Setting] = {"cuDNN off": _switch(*_CUDNN, False)}
EVERY = {**SETTINGS, **ON_CUDA}


class Setters:
    """The steps of `steps.Interpreter` that set something."""

    models: dict[str, nn.Module]
    wide: bool
    parallel: bool
    under: dict[str, Any]
    left: set[str]

    def dtype(self, to: str, model: str = "a") -> None:
        """``.to(dtype)``; the float64 run keeps its type, and has its weights rounded to that."""
        if self.wide:
            values.rounded(self.models[model], getattr(torch, to))
        else:
            self.models[model].to(getattr(torch, to))

    def setting(self, name: str, on: bool) -> None:
        """One of `EVERY`, or none any more; the float64 run is made under none."""
        if self.wide or (name == LATER and not self.parallel):
            return
        if on:
            later = name == LATER
            self.under[name] = clocks.move(self.models.values()) if later else EVERY[name].on()
        else:
            if not EVERY[name].stands():
                self.left.add(name)
            EVERY[name].off(self.under.pop(name))

    def put_back_settings(self) -> None:
        """Put all back that a life which ended early has left, the last one first."""
        for name in reversed(list(self.under)):
            EVERY[name].off(self.under.pop(name))
