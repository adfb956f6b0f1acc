"""The options of `torch.compile(model, backend="refold", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class BackendOptions:
    """target: a name of refold.devices.DEVICES; by default that of the device of a graph's tensors.
    float32: how accurate products of float32 on a GPU have to be, "ieee" or "tf32"; by default as
    PyTorch's flags allow. strict: no rule that assumes finite values. measure: where a graph gains
    by price, time ours beside Inductor's while compiling, and take the faster one; False lets the
    price decide. check: while compiling, measure the error of what is ours beside eager's, and take
    Inductor's where it is larger than that of an emitted file may be. graphs: each graph is
    captured as a CUDA graph, as by mode="reduce-overhead". report: print a line for each graph that
    is compiled. eager_draws: random numbers are those that eager draws under the same seed, by
    PyTorch's own calls, and not Inductor's.
    """

    target: str | None = None
    float32: str | None = None
    strict: bool = False
    measure: bool = True
    check: bool = True
    graphs: bool = False
    report: bool = False
    eager_draws: bool = False

    def given(self) -> dict[str, Any]:
        """As a call would give them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> BackendOptions:
        """The options of a call. Raises ValueError for one that is unknown, or of a wrong value."""
        given = given or {}
        for name in given:
            if name not in OPTIONS:
                raise ValueError(f"unknown option {name!r}; the options are {', '.join(OPTIONS)}")
        made = cls(**given)
        for name in ("strict", "measure", "check", "graphs", "report", "eager_draws"):
            if not isinstance(getattr(made, name), bool):
                came = repr(getattr(made, name))
                raise ValueError(f"expected the option {name} to be True or False, came {came}")
        if made.float32 not in (None, "ieee", "tf32"):
            raise ValueError(f'expected float32="ieee" or "tf32", came {made.float32!r}')
        if made.target is not None:
            from refold.devices import DEVICES  # planning is not needed where all was kept

            if made.target in DEVICES:
                return made
            known = ", ".join(DEVICES)
            raise ValueError(f"unknown target {made.target!r}; the targets are {known}")
        return made


OPTIONS = tuple(f.name for f in fields(BackendOptions))
