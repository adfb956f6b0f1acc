"""The worker: imports the candidate and does what the judge asks. It decides nothing.

Started as `python -m refold.judge.worker FOLDER READ_FD WRITE_FD`. Its standard output is the
candidate's to fill; answers go over their own pipe.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from refold.judge import wire


class Session:
    """One candidate and its instance."""

    def __init__(self) -> None:
        self.cls: Any = None
        self.model: Any = None
        self.kept: list[Any] = []

    # each method is a command; it takes the message and the tree, and answers with a pair
    def load(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        spec = importlib.util.spec_from_file_location("candidate", message["path"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        sys.path.insert(0, str(Path(message["path"]).resolve().parent))
        spec.loader.exec_module(module)
        if not hasattr(module, "ModelNew"):
            raise AttributeError("the file has no class ModelNew")
        self.cls = module.ModelNew
        assumes = getattr(module, "REFOLD_ASSUMES", None)
        return {"assumes": assumes if isinstance(assumes, str) else None}, None

    def make(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        torch.manual_seed(message["seed"])
        self.model = self.cls(*values)
        self.model.to(message["device"])
        return {}, None

    def state(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """The state_dict; only names, shapes and dtypes unless `whole`."""
        state = dict(self.model.state_dict())
        shapes = {k: [list(v.shape), str(v.dtype)] for k, v in state.items()}
        wanted = message.get("names")
        if wanted is not None:
            state = {k: v for k, v in state.items() if k in wanted}
        return {"shapes": shapes}, state if message.get("whole") else {}

    def load_state(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        self.model.load_state_dict(values, strict=True)
        return {}, None

    def write_state(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """Write parameters in place, as an optimizer does."""
        mine = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in values.items():
                mine[name].copy_(value)
        return {}, None

    def mode(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        self.model.train(message["training"])
        return {}, None

    def duplicate(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        self.model = copy.deepcopy(self.model)
        return {}, None

    def roundtrip(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """To float64 and back, which gives every parameter new storage."""
        self.model.double().float()
        return {}, None

    def call(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """One forward; the answer holds the outputs, and the inputs and RNG as they are after."""
        inputs = [_laid_out(v, message.get("layout")) for v in values]
        before = torch.get_rng_state()
        start = time.perf_counter()
        with torch.no_grad():
            out = self.model(*inputs)
        seconds = time.perf_counter() - start
        if message.get("keep"):
            self.kept.append(out)
        drew = not torch.equal(before, torch.get_rng_state())
        flags = [
            torch.get_num_threads(),
            torch.backends.cuda.matmul.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
            str(torch.get_default_dtype()),
            torch.is_grad_enabled(),
        ]
        after = inputs if message.get("check_inputs", True) else []
        return {"seconds": seconds, "drew": drew, "flags": flags}, [out, after]

    def look_again(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """The first output kept, as it is now."""
        return {}, self.kept.pop(0)

    def gradients(self, message: dict[str, Any], values: Any) -> tuple[dict[str, Any], Any]:
        """Gradients of the sum of all floating outputs for inputs and parameters."""
        inputs = [
            v.clone().requires_grad_()
            if isinstance(v, torch.Tensor) and v.is_floating_point()
            else v
            for v in values
        ]
        out = self.model(*inputs)
        leaves = [t for t in _tensors(out) if t.is_floating_point()]
        if not leaves or not any(t.requires_grad for t in leaves):
            return {"none": True}, None
        wanted = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
        wanted += list(self.model.parameters())
        total = sum(t.double().square().sum() for t in leaves if t.requires_grad)
        found = torch.autograd.grad(total, wanted, allow_unused=True)  # type: ignore[arg-type]
        return {"none": False}, list(found)


def _tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [t for v in tree for t in _tensors(v)]
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in _tensors(v)]
    return []


def _laid_out(value: Any, layout: str | None) -> Any:
    """The same values in memory laid out otherwise."""
    if not isinstance(value, torch.Tensor) or layout is None or value.dim() == 0:
        return value.clone() if isinstance(value, torch.Tensor) else value
    if layout == "transposed":
        order = list(range(value.dim()))[::-1]
        return value.permute(order).contiguous().permute(order)
    if layout == "sliced":
        wide = torch.stack([value, torch.zeros_like(value)], dim=-1)
        return wide[..., 0]
    shifted = torch.zeros(value.numel() + 1, dtype=value.dtype)
    shifted[1:] = value.reshape(-1)
    return shifted[1:].view(value.shape)


def serve(folder: Path, reading: int, writing: int) -> None:
    session = Session()
    with os.fdopen(reading, "rb") as commands, os.fdopen(writing, "wb") as answers:
        count = 0
        while True:
            try:
                message, values = wire.read(commands, folder)
            except EOFError:
                return
            count += 1
            try:
                reply, result = getattr(session, message["do"])(message, values)
            except BaseException as error:
                lines = str(error).strip().splitlines() or [""]
                reply, result = {"error": f"{type(error).__name__}: {lines[0][:500]}"}, None
                if message.get("debug"):
                    traceback.print_exc()
            wire.write(answers, reply, result, folder, f"answer{count % 2}")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
