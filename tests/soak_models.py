"""The models of a soak: drawn texts, and those of the zoo, made from their names."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from random_images import image_text
from random_models import model_text
from random_nested import nested_text
from refold.judge.draws.inputs import resized
from refold.judge.draws.trees import mapped, tensors
from zoo import CASES


@dataclass(frozen=True)
class Named:
    """A module by what makes it: the name of one of the zoo's, or the text of a random model.

    form: "twin", what `refold.optimize` gives in memory, or "file", the class of the emitted file.
    target: "cpu", or "torch" for kernels that are PyTorch. dtype: of all its floats. grown: a twin
    has been called with one sample, too, for which it makes kernels of their own.
    """

    text: str
    form: str = "twin"
    target: str = "cpu"
    dtype: str = "float32"
    grown: bool = False

    @property
    def title(self) -> str:
        return self.text if self.text in CASES else f"a random model as a {self.form}"


def random_text(choose: Callable[[Any], Any], longest: int, kind: str) -> str:
    """The text of a random model, of a kind of `soak.KINDS`."""
    if kind == "nested":
        return nested_text(choose)
    return image_text(choose) if kind == "images" else model_text(choose, longest)


@functools.lru_cache(maxsize=64)
def _module(text: str) -> types.ModuleType:
    """The text as a module that pickles find."""
    name = f"random_model_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(compile(text, f"<{name}>", "exec"), made.__dict__)
    return made


def made(named: Named) -> tuple[nn.Module, Callable[[int], list[Any]]]:
    """The module, and a function that draws inputs of a batch size."""
    torch.manual_seed(1)
    if named.text in CASES:
        module = CASES[named.text]()
        return module, functools.partial(_of_the_zoo, module)
    space = _module(named.text)
    dtype = getattr(torch, named.dtype)

    def inputs(count: int) -> list[Any]:
        space.n = count  # type: ignore[attr-defined]
        given: list[Any] = mapped(space.get_inputs(), lambda t: t.to(dtype))
        return given

    module = space.Model().to(dtype)
    for m in module.modules():
        for k, v in vars(m).items():
            if isinstance(v, torch.Tensor) and v.is_floating_point():
                setattr(m, k, v.to(dtype))
    return module, inputs


def _of_the_zoo(module: Any, count: int) -> list[Any]:
    """Its own inputs, of a batch of another size where they have one; 6 stands for their own."""
    given: list[Any] = module.inputs()
    first = next((t for t in tensors(given) if t.dim()), None)
    if first is None or count == 6:
        return given
    old = first.shape[0]
    pairs = [(i, 0) for i, t in enumerate(tensors(given)) if t.dim() and t.shape[0] == old]
    return resized(given, old, count, iter(pairs))
