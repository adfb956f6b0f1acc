"""The bench on which a candidate is tried: reference, oracle and worker kept in the same state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.contract import Reference
from refold.judge.client import Worker
from refold.judge.compare import Difference, compare, relative_error, tensors


def map_tensors(tree: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The tree with every tensor replaced."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(v, function) for v in tree)
    if isinstance(tree, dict):
        return {k: map_tensors(v, function) for k, v in tree.items()}
    return tree


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.double() if t.is_floating_point() else t.clone()


@dataclass(frozen=True)
class Trial:
    """One call made on all three sides."""

    difference: Difference
    got: Any
    eager: Any
    truth: Any
    reply: Mapping[str, Any]
    after: Any


class Rejected(Exception):
    """The reference itself does not take these inputs: the case does not apply."""


class Bench:
    """Reference (eager), oracle (float64) and candidate (worker), in step."""

    def __init__(self, reference: Reference, worker: Worker, seed: int) -> None:
        self.reference = reference
        self.worker = worker
        self.seed = seed
        self.assumes: str | None = None
        self.model = reference.make(seed)
        self.oracle = copy.deepcopy(self.model).double()
        for a, b in zip(self.oracle.modules(), self.model.modules(), strict=True):
            for name, value in vars(b).items():
                if isinstance(value, torch.Tensor):  # neither parameter nor buffer
                    vars(a)[name] = _wide(value)
        init = reference.init_inputs()
        worker.ask("make", init, seed=seed, device="cpu", seconds=worker.load_seconds)

    def train(self, training: bool) -> None:
        self.model.train(training)
        self.oracle.train(training)
        self.worker.ask("mode", training=training)

    def try_inputs(
        self, inputs: list[Any], *, layout: str | None = None, keep: bool = False
    ) -> Trial:
        """Call all three sides and compare. Raises Rejected where the reference raises."""
        clone = [map_tensors(v, torch.Tensor.clone) for v in inputs]
        with torch.no_grad():
            try:
                eager = self.model(*clone)
            except Exception as error:
                raise Rejected(str(error)) from error
            truth = self.oracle(*[map_tensors(v, _wide) for v in inputs])
        reply, (got, after) = self.worker.ask("call", inputs, layout=layout, keep=keep)
        return Trial(compare(got, eager, truth), got, eager, truth, reply, after)

    def eager_again(self, inputs: list[Any]) -> Any:
        with torch.no_grad():
            return self.model(*[map_tensors(v, torch.Tensor.clone) for v in inputs])

    def errors(self, trial: Trial) -> tuple[float, float]:
        return relative_error(trial.got, trial.truth), relative_error(trial.eager, trial.truth)

    # --- state ------------------------------------------------------------------------------------
    def write(self, values: Mapping[str, torch.Tensor]) -> None:
        """Write parameters and buffers in place on all three sides."""
        with torch.no_grad():
            for side in (self.model, self.oracle):
                own = dict(side.named_parameters()) | dict(side.named_buffers())
                for name, value in values.items():
                    own[name].copy_(value)
        self.worker.ask("write_state", dict(values))

    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """load_state_dict(strict=True) on all three sides."""
        self.model.load_state_dict(values)
        self.oracle.load_state_dict(values)
        self.worker.ask("load_state", dict(values))

    def synchronise(self) -> None:
        """Give oracle and candidate the reference's buffers again."""
        buffers = {k: v.clone() for k, v in self.model.named_buffers()}
        if buffers:
            self.write(buffers)

    def buffers_differ(self) -> Difference:
        """The candidate's buffers against the reference's after the same calls."""
        names = [k for k, _ in self.model.named_buffers() if k in self.model.state_dict()]
        if not names:
            return Difference(0.0, "")
        _, state = self.worker.ask("state", names=names, whole=True)
        own, wide = self.model.state_dict(), self.oracle.state_dict()
        return compare(
            {k: state.get(k) for k in names},
            {k: own[k] for k in names},
            {k: wide[k] for k in names},
        )


def inputs_like(inputs: list[Any], function: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    """Inputs with every floating tensor replaced."""
    return [map_tensors(v, lambda t: function(t) if t.is_floating_point() else t) for v in inputs]


def with_rows(inputs: list[Any], rows: int) -> list[Any]:
    """Inputs with `rows` in the first dimension, by repeating or cutting, where all share it."""
    found = [t for _, t in tensors(inputs)]
    if not found or any(t.dim() == 0 or t.shape[0] != found[0].shape[0] for t in found):
        raise Rejected("the inputs share no first dimension")

    def resize(t: torch.Tensor) -> torch.Tensor:
        index = torch.arange(rows) % max(t.shape[0], 1)
        return t[index].contiguous()

    return [map_tensors(v, resize) for v in inputs]
