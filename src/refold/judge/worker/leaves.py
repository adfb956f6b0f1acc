"""In the worker: what is done to the tensors of a tree, inputs and outputs alike."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.wire import frames, plain

Tree = Any
_ALIGNED = 16  # bytes, so that each may be viewed as its own type


def leaves(tree: Tree) -> list[Any]:
    """All leaves, in order."""
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    held = plain.record(tree)
    return [tree] if held is None else leaves(held)


def tensors(tree: Tree) -> list[torch.Tensor]:
    """The tensors among the leaves."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def moved(value: Any, device: torch.device) -> Any:
    """The tree on a device, with strides and misalignment."""
    if isinstance(value, torch.Tensor):
        if device.type == "cpu":
            return value
        # A plain .to() would drop strides and offset.
        size = frames.span(value)
        lead = min(value.storage_offset(), frames.MOST_LEAD)
        storage = torch.zeros(lead + size, dtype=value.dtype, device=device)
        storage[lead:] = torch.as_strided(value, (size,), (1,)).to(device)
        return torch.as_strided(storage, value.shape, value.stride(), lead)
    if isinstance(value, list | tuple):
        return type(value)(moved(v, device) for v in value)
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    return value


def place(device: torch.device, size: int) -> torch.device:
    """Where so many bytes are to be received: on the device if it has much more than that free."""
    if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] > 8 * size:
        return device
    return torch.device("cpu")


def require_grad(value: Any) -> Any:
    """Floating and complex tensors as new leaves that want gradients."""
    if isinstance(value, torch.Tensor):
        leaf = value.detach()
        return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf
    if isinstance(value, list | tuple):
        return type(value)(require_grad(v) for v in value)
    if isinstance(value, dict):
        return {k: require_grad(v) for k, v in value.items()}
    return value


def real(t: torch.Tensor) -> torch.Tensor:
    """Both parts of complex numbers; others as they are."""
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def dense(t: torch.Tensor) -> torch.Tensor:
    """A sparse tensor's values as a dense one; others as they are."""
    return t if t.layout is torch.strided else t.to_dense()


def sparse(found: dict[str, Any]) -> list[str]:
    """Names of those that are no dense tensors, as gradients of sparse tables are."""
    held = {n: t for n, t in found.items() if isinstance(t, torch.Tensor)}
    return [n for n, t in held.items() if t.layout is not torch.strided]


def copied(tree: Tree) -> Tree:
    """A plain contiguous copy where it lies, taken at once: work that is not finished shows."""
    if isinstance(tree, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            copy = dense(tree.detach()).clone(memory_format=torch.contiguous_format)
            if copy.is_cuda:
                torch.cuda.current_stream(copy.device).synchronize()  # what fails does so here
            return copy
    tree = plain.opened(tree)
    if isinstance(tree, tuple):
        return tuple(copied(v) for v in tree)
    if isinstance(tree, list):
        return [copied(v) for v in tree]
    if isinstance(tree, dict):
        return {plain.key(k): copied(v) for k, v in tree.items()}
    value = plain.value(tree)
    if plain.encode(value) is not None:
        return value
    return plain.name_of(tree)


def meta(value: Any) -> dict[str, Any]:
    """What a leaf is: class, dtype, device, shape, strides."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind == "torch.Tensor" and type(value) is not torch.Tensor:
        kind = "a class that calls itself torch.Tensor"
    if not isinstance(value, torch.Tensor):
        return {"class": kind}
    return {
        "class": kind,
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
        "shape": list(value.shape),
        "stride": list(value.stride()) if value.layout == torch.strided else [],
        "layout": str(value.layout),
        "inference": value.is_inference(),
    }


def form(tree: Tree) -> Any:
    """What a caller's arguments are made of: containers, keys, how tensors lie, other values."""
    if isinstance(tree, torch.Tensor):
        place = [list(tree.stride()), tree.storage_offset()] if tree.layout == torch.strided else []
        return ["tensor", list(tree.shape), place, tree.requires_grad]
    if isinstance(tree, list | tuple):
        return [type(tree).__name__, *(form(v) for v in tree)]
    if isinstance(tree, dict):
        return ["dict", *([str(k), form(v)] for k, v in tree.items())]
    return [type(tree).__name__, repr(tree)[:200]]


def versions(held: list[torch.Tensor]) -> list[int]:
    """How often PyTorch counted a write to each."""
    return [0 if t.is_inference() else t._version for t in held]


def packed(tree: Tree) -> tuple[list[tuple[int, torch.Tensor]], int]:
    """The tensors of an output with the offsets at which they follow one another in the arena, and
    the bytes that they take there."""
    found, end = [], 0
    for tensor in tensors(tree):
        found.append((end, tensor))
        end += -(-tensor.numel() * tensor.element_size() // _ALIGNED) * _ALIGNED
    return found, end


def other_generators() -> list[str]:
    """States of Python's and (where it is in use) NumPy's generators."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return [str(hash(random.getstate())), ""]
    _, keys, position, *_ = numpy.random.get_state()
    return [str(hash(random.getstate())), f"{position} {hashlib.md5(keys.tobytes()).hexdigest()}"]


def registered(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers where modules keep them, past what a class may have overridden."""
    return dict(_registered(model, ""))


def _registered(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    own = vars(module)
    for name, value in {**own.get("_parameters", {}), **own.get("_buffers", {})}.items():
        if isinstance(value, torch.Tensor):
            yield prefix + name, value
    for name, child in own.get("_modules", {}).items():
        if isinstance(child, torch.nn.Module):
            yield from _registered(child, f"{prefix}{name}.")


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By every name: which of a tied one's comes first depends on the order of declaration."""
    return dict(model.named_parameters(remove_duplicate=False))


def tied(model: torch.nn.Module) -> list[list[str]]:
    """Names of one and the same parameter, where it has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in parameters(model).items():
        names.setdefault(id(parameter), []).append(name)
    return sorted(sorted(group) for group in names.values() if len(group) > 1)


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module's state, without what `get_extra_state` adds to it."""
    return {k: v for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}


def load(
    module: torch.nn.Module, state: dict[str, Any], strict: bool = True, assign: bool = False
) -> Any:
    """``load_state_dict`` of tensors; what else a module's state has it is given as it has it."""
    own = {k: v for k, v in module.state_dict().items() if not isinstance(v, torch.Tensor)}
    return module.load_state_dict({**own, **state}, strict=strict, assign=assign)


def shape(value: Any) -> list[Any]:
    """Sizes and dtype; of what is no tensor its type."""
    if not isinstance(value, torch.Tensor):
        return [[], type(value).__qualname__]
    return [list(value.shape), str(value.dtype).removeprefix("torch.")]


def storage(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the whole storage, guard bands included, where they lie."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage())


def same(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether a tensor has the values, NaN among them, that a copy of it has."""
    if torch.equal(tensor, before):
        return True
    kept = tensor == before
    if tensor.is_floating_point() or tensor.is_complex():
        kept |= torch.isnan(tensor) & torch.isnan(before)
    return bool(kept.all())


def digest(tensor: torch.Tensor) -> str:
    """Of the whole storage, guard bands included."""
    return hashlib.blake2b(frames.view_bytes(storage(tensor).cpu()), digest_size=16).hexdigest()
