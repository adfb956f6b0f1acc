"""In a life: what is saved and loaded, states and whole modules, here and in another process."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from refold.judge.worker import looks
from refold.judge.worker.leaves import load
from refold.judge.worker.looks import FACT, OUTPUT

_STATE_HOOKS = (
    "state_dict_pre",
    "state_dict_post",
    "load_state_dict_pre",
    "load_state_dict_post",
)
_REFUSED: tuple[str, ...] = ("a name missing", "a name more", "another shape")


class Saving(looks.Looks):
    """The steps of `steps.Interpreter` that save and load."""

    device: torch.device
    saved: dict[str, Any]
    inputs: Any

    def load(self, state: str, model: str = "a", assign: bool = False) -> None:
        """``load_state_dict``."""
        given = {k: v.clone().to(self.device) for k, v in self._cast(self.states[state]).items()}
        load(self.models[model], given, assign=assign)

    def own(self, state: str, label: str, model: str = "a") -> None:
        """``load_state_dict(assign=True)``; which names have the given tensors' memory from then on
        is seen, others may have it, too."""
        given = {k: v.clone().to(self.device) for k, v in self._cast(self.states[state]).items()}
        load(self.models[model], given, assign=True)
        held = self.models[model].state_dict()
        found = [k for k, v in given.items() if held[k].data_ptr() == v.data_ptr() != 0]
        self._see(label, looks.LEAST, found)

    def load_part(self, state: str, names: Sequence[str], label: str, model: str = "a") -> None:
        """``load_state_dict(strict=False)`` of some names and one that nobody has; what it says is
        seen."""
        whole = self._cast(self.states[state])
        given = {n: whole[n].clone().to(self.device) for n in names}
        given["refold_unknown"] = torch.zeros(1, device=self.device)
        said = self.models[model].load_state_dict(given, strict=False)
        kinds = ("missing_keys", "unexpected_keys")
        found = [sorted(getattr(said, kind, ["said nothing"])) for kind in kinds]
        self._see(label, FACT, found)

    def refuse_load(self, state: str, name: str, label: str, model: str = "a") -> None:
        """States that are refused: without a name, with one more, of another shape. Which were
        taken is seen."""
        for kind in _REFUSED:
            given = {
                k: v.clone().to(self.device) for k, v in self._cast(self.states[state]).items()
            }
            if kind == "a name missing":
                del given[name]
            elif kind == "a name more":
                given["refold_unknown"] = given[name].clone()
            else:
                given[name] = torch.zeros((*given[name].shape, 2), device=self.device)
            refused = False
            try:
                load(copy.deepcopy(self.models[model]), given)
            except Exception:
                refused = True
            self._see(f"{label}: {kind}", FACT, refused)

    def write_state(self, name: str, factor: float, model: str = "a") -> None:
        """Write to what ``state_dict`` gives, which is the module's own memory."""
        with torch.no_grad():
            self.models[model].state_dict()[name].mul_(factor)

    def state_hooks(self, state: str, label: str, model: str = "a") -> None:
        """Hooks that are called when a state is made or loaded, and a part that somebody adds: how
        often each was called, and the names that the part has, are seen."""
        module, called = self.models[model], dict.fromkeys(_STATE_HOOKS, 0)

        def counted(kind: str) -> Callable[..., None]:
            def count(*_: Any) -> None:
                called[kind] += 1

            return count

        handles = [getattr(module, f"register_{k}_hook")(counted(k)) for k in _STATE_HOOKS]
        module.add_module("refold_added", nn.Linear(1, 1, bias=False))
        names = [*module.state_dict(), *(n for n, _ in module.named_parameters())]
        del module.refold_added
        given = {k: v.clone().to(self.device) for k, v in self._cast(self.states[state]).items()}
        load(module, given)
        for handle in handles:
            if handle is not None:
                handle.remove()
        seen = [called, sorted(n for n in names if n.startswith("refold_added"))]
        self._see(label, FACT, seen)

    def save(self, name: str, model: str = "a") -> None:
        """Keep a copy of the state, as a checkpoint does."""
        held = self.models[model].state_dict().items()
        self.saved[name] = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in held}

    def restore(self, name: str, model: str = "a") -> None:
        """Load what was saved."""
        self.models[model].load_state_dict(self.saved[name], strict=True)

    def pickle(self, model: str = "a") -> None:
        """``torch.save`` and ``torch.load`` of the whole module, in this process."""
        self.models[model] = _loaded(_dumped(self.models[model]))
        self._identify(model)

    def dump(self, label: str, model: str = "a") -> None:
        """``torch.save`` of the whole module; its bytes are seen."""
        found = torch.frombuffer(bytearray(_dumped(self.models[model])), dtype=torch.uint8)
        self._see(label, OUTPUT, found)

    def revive(self, inputs: str, model: str = "a") -> None:
        """``torch.load`` of bytes that another process of this candidate saved."""
        (found,) = self.inputs[inputs]
        self.models[model] = _loaded(found.cpu().numpy().tobytes()).to(self.device)
        self._identify(model)


def _dumped(module: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(module, file)
    return file.getvalue()


def _loaded(saved: bytes) -> nn.Module:
    # what this side wrote a moment ago: the parent reads only the reference so
    module: nn.Module = torch.load(io.BytesIO(saved), weights_only=False)
    return module
