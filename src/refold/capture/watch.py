"""What forward asks and changes while torch.export follows it.

An exported program holds operations only. What else forward does has to be seen while it does it:
attributes that it sets, its modules' modes, where tensors lie, and PyTorch's own settings.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from refold.capture.captured import attribute
from refold.capture.kept import Counts, held_in
from refold.capture.values import VALUES, CaptureError
from refold.runtime.settings import _refold_is_plain, _refold_own

_QUERIES = (
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "get_default_dtype",
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "is_anomaly_enabled",
)
_LAYOUT = {
    *("stride", "is_contiguous", "storage_offset", "is_non_overlapping_and_dense"),
    *("dim_order", "suggest_memory_format"),
}
_ADDRESS = {"data_ptr", "untyped_storage", "storage", "_typed_storage", "is_set_to", "_version"}
_HISTORY = {"requires_grad", "is_leaf", "grad_fn"}
_NUMBERS = {
    *("item", "tolist", "numpy", "equal", "is_nonzero", "__array__", "__float__", "__int__"),
    *("__bool__", "__index__", "__complex__", "__contains__"),
}
_ASKS = _LAYOUT | _ADDRESS | _HISTORY | {"grad"}
_DROPOUTS = tuple(
    getattr(torch.nn, name)
    for name in (
        *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"),
    )
)


class Watch:
    """What one run of forward asked and changed.

    assigned: the values of attributes that it set, by module path and name. read_first: those that
    it read before. filled: whether a list, dict or set has other items. reads_mode: whether a
    module's mode was asked for where it may matter. queries: PyTorch's settings that were asked
    for, as text, and their values. layout: whether strides were asked for. history: whether
    gradients' marks on tensors were asked for. inference: whether the results are tensors of
    inference mode, which forward itself enters. graded: whether forward turns gradients on.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.paths = {
            id(m): path
            for path, m in module.named_modules()
            if not type(m).__module__.startswith("torch.")
        }
        self.assigned: dict[tuple[str, str], Any] = {}
        self.read_first: set[tuple[str, str]] = set()
        self.changed: list[str] = []
        self.filled = False
        self.computed: set[tuple[str, str]] = set()
        self.reads_mode = False
        self.queries: dict[str, Any] = {}
        self.layout = False
        self.history = self.inference = self.graded = False
        self.problem: CaptureError | None = None
        self._read: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Watches the block, and puts back afterwards what it changed."""
        self._read.clear()
        held = list(self._held())
        counts = list(self._counts())
        before = {
            (path, name): (kind, vars(m)[kind][name] if kind else vars(m)[name])
            for path, m in self._modules()
            for kind in ("", "_buffers")
            for name in (vars(m)[kind] if kind else vars(m))
            if kind or name not in _USUAL
        }
        plain = torch.nn.Module.__setattr__
        torch.nn.Module.__setattr__ = self._setting(plain)  # type: ignore[method-assign]
        torch.nn.Module.__getattribute__ = self._getting  # type: ignore[method-assign]
        try:
            with self._asked(), self._nested(), _Layouts(self):
                yield
        finally:
            del torch.nn.Module.__getattribute__
            torch.nn.Module.__setattr__ = plain  # type: ignore[method-assign]
            for path, value, was in held:
                if not _same_items(value, was):
                    self.changed.append(path)
                    self.filled = True
                    value.clear()
                    value.extend(was) if isinstance(value, list) else value.update(was)
            self.changed += [path for path, one in counts if one.has_counted()]
            modules = dict(self._modules())
            for path, m in modules.items():
                for name, value in list(vars(m).items()):
                    own = name in _USUAL or name in ("training", "forward")
                    if own or before.get((path, name), (0, _NOTHING))[1] is value:
                        continue
                    if isinstance(getattr(type(m), name, None), functools.cached_property):
                        self.computed.add((path, name))
                        del vars(m)[name]
                    elif (path, name) not in self.assigned:  # past __setattr__
                        self.read_first.add((path, name))
                        self.assigned[path, name] = value
            for key in [k for k in self.read_first if _is_same(self.assigned[k], before.get(k))]:
                self.read_first.remove(key)
                del self.assigned[key]  # a setting that is as it was, and compared before each call
            for path, name in self.assigned:
                m = modules[path]
                m._buffers.pop(name, None)
                vars(m).pop(name, None)
                if (path, name) in before:
                    kind, value = before[path, name]
                    (vars(m)[kind] if kind else vars(m))[name] = value

    @property
    def sets_what_it_read(self) -> bool:
        """Whether forward has set an attribute that it had read, and to no tensor, or has changed
        what a container holds."""
        values = (self.assigned[key] for key in self.read_first)
        return self.filled or any(not isinstance(value, torch.Tensor) for value in values)

    def _modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        for path, m in self.module.named_modules():
            if id(m) in self.paths:
                yield path, m

    def _held(self) -> Iterator[tuple[str, Any, Any]]:
        for path, m in self._modules():
            for name, value in vars(m).items():
                if name not in _USUAL:
                    yield from _containers(f"{path}.{name}".strip("."), value)

    def _counts(self) -> Iterator[tuple[str, Counts]]:
        for path, m in self._modules():
            for name in vars(m).keys() - _USUAL:
                words = f"{path}.{name}".strip(".")
                yield from ((words, Counts(one)) for one in held_in(m, (name,)))

    def asks_history(self, tensor: Any, name: str) -> None:
        """Notes of which parameter forward asks whether it wants a gradient, or that it asks of
        another tensor."""
        places = self.module.named_parameters(remove_duplicate=False)
        path = next((path for path, p in places if p is tensor), None)
        if path is None:
            self.history = True
        elif name == "requires_grad":
            self.queries[f"{attribute(path)}.requires_grad"] = tensor.requires_grad

    def _setting(self, plain: Callable[..., None]) -> Callable[..., None]:
        def watching(module: torch.nn.Module, name: str, value: Any) -> None:
            path = self.paths.get(id(module))
            if path is not None:
                if (
                    name in module._parameters
                    or name in module._modules
                    or isinstance(value, (torch.nn.Parameter, torch.nn.Module))
                ):
                    self.changed.append(f"{path}.{name}".strip("."))
                elif name != "training" and value is not _held(module, name):
                    key = path, name
                    if key not in self.assigned and key in self._read:
                        self.read_first.add(key)
                    self.assigned[key] = value
            plain(module, name, value)

        return watching

    @property
    def _getting(self) -> Callable[..., Any]:
        get = object.__getattribute__

        def watching(module: torch.nn.Module, name: str) -> Any:
            if name == "training":
                self.reads_mode = self.reads_mode or not _never_drops(module)
            elif name not in _USUAL:
                path = self.paths.get(id(module))
                if path is not None:
                    self._read.add((path, name))
            return get(module, name)

        return watching

    @contextlib.contextmanager
    def _nested(self) -> Iterator[None]:
        """PyTorch's encoder takes padded places out in eval mode, and gives zeros there; not so
        while it is followed. Where it would, capture ends.

        Its transformers look whether a mask is causal, and leave such a one away: the same function
        as with the mask, if nothing that can be captured. And in eval mode the encoder's layer
        takes a mask of numbers for one of truth values, where one kernel computes it."""
        encoder, decoder = torch.nn.TransformerEncoder, torch.nn.TransformerDecoder
        layer = torch.nn.TransformerEncoderLayer
        forward, decode, attend = encoder.forward, decoder.forward, layer.forward

        def watching(
            own: torch.nn.TransformerEncoder,
            src: torch.Tensor,
            mask: torch.Tensor | None = None,
            src_key_padding_mask: torch.Tensor | None = None,
            is_causal: bool | None = None,
        ) -> torch.Tensor:
            nests = getattr(own, "use_nested_tensor", False) and src.dim() == 3 and mask is None
            if nests and src_key_padding_mask is not None:
                self.reads_mode = True
                if not own.layers[0].training:
                    raise CaptureError(
                        "PyTorch's TransformerEncoder leaves padded places out in eval mode"
                        " (enable_nested_tensor), which cannot be captured"
                    )
            return forward(own, src, mask, src_key_padding_mask, is_causal is True)

        def decoding(own: torch.nn.TransformerDecoder, *args: Any, **kwargs: Any) -> torch.Tensor:
            given = signature.bind(own, *args, **kwargs)
            given.arguments["tgt_is_causal"] = given.arguments.get("tgt_is_causal") is True
            return decode(*given.args, **given.kwargs)

        def attending(
            own: torch.nn.TransformerEncoderLayer,
            src: torch.Tensor,
            src_mask: torch.Tensor | None = None,
            src_key_padding_mask: torch.Tensor | None = None,
            is_causal: bool = False,
        ) -> torch.Tensor:
            if src_mask is not None and src_mask.is_floating_point() and _is_one_kernel(own, src):
                enabled = torch.backends.mha.get_fastpath_enabled()
                self.queries["torch.backends.mha.get_fastpath_enabled()"] = enabled
                src_mask = src_mask != 0 if enabled else src_mask
            return attend(own, src, src_mask, src_key_padding_mask, is_causal)

        signature = inspect.signature(decode)
        layer.forward = attending  # type: ignore[method-assign, assignment]
        encoder.forward = watching  # type: ignore[method-assign, assignment]
        decoder.forward = decoding  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            encoder.forward = forward  # type: ignore[method-assign]
            decoder.forward = decode  # type: ignore[method-assign]
            layer.forward = attend  # type: ignore[method-assign]

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """PyTorch's functions that tell a setting write down what they told forward."""
        spaces: list[dict[str, Any]] = [vars(torch)]
        for m in self.module.modules():
            home = sys.modules.get(type(m).__module__)
            if home is not None and not _is_torchs(home.__name__):
                spaces.append(vars(home))
        changed: list[tuple[dict[str, Any], str, Any]] = []
        known = {id(getattr(torch, n)): n for n in _QUERIES if hasattr(torch, n)}
        makers = {i: self._telling(n, getattr(torch, n)) for i, n in known.items()}
        for space in {id(s): s for s in spaces}.values():
            for name, value in list(space.items()):
                if id(value) in makers:
                    changed.append((space, name, value))
                    space[name] = makers[id(value)]
        try:
            yield
        finally:
            for space, name, value in changed:
                space[name] = value

    def _telling(self, name: str, function: Callable[[], Any]) -> Callable[[], Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            if not args and not kwargs and not _is_torchs(_caller(1)):
                self.queries[f"torch.{name}()"] = value
            return value

        return told


def _is_same(value: Any, before: tuple[str, Any] | None) -> bool:
    """Is a plain value what an attribute held before?"""
    plain = _refold_is_plain(value) and before is not None and type(before[1]) is type(value)
    return plain and before is not None and bool(before[1] == value)


def _held(module: torch.nn.Module, name: str) -> Any:
    """A tensor that a module has under a name: what `+=` sets is the same one."""
    found = module._buffers.get(name, vars(module).get(name))
    return found if isinstance(found, torch.Tensor) else _NOTHING


_NOTHING = object()
_USUAL = vars(torch.nn.Module())


def _is_one_kernel(layer: torch.nn.TransformerEncoderLayer, src: torch.Tensor) -> bool:
    """Whether PyTorch computes an encoder's layer by one kernel, where no gradients are wanted."""
    attention = layer.self_attn
    return (
        src.dim() == 3
        and not layer.training
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and bool(layer.activation_relu_or_gelu)
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class _Layouts(TorchFunctionMode):
    """Notes where forward itself asks how a tensor lies in memory."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(function, "__self__", None), "__name__", "")
        if name == "_set_grad_enabled" and args == (True,) and not torch.is_grad_enabled():
            self.watch.graded = True
        if name in _NUMBERS and args and type(args[0]) in (torch.Tensor, torch.nn.Parameter):
            self.watch.problem = CaptureError(VALUES)  # no trace of it is in the program
        if name in _ASKS and not _is_torchs(_caller(1)):
            if name in _ADDRESS:
                self.watch.problem = CaptureError(f"forward asks where a tensor lies ({name})")
            if name == "grad":
                self.watch.problem = CaptureError("forward reads gradients (grad)")
            self.watch.layout |= name in _LAYOUT
            if name in _HISTORY:
                self.watch.asks_history(args[0] if args else None, name)
        return function(*args, **(kwargs or {}))


def _caller(depth: int) -> str:
    """The name of the module whose code called, past this file and what dispatches."""
    frame = sys._getframe(depth + 1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in (__name__, "torch.overrides", "torch._tensor", "torch.utils._contextlib"):
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _is_torchs(name: str) -> bool:
    return name == "torch" or name.startswith(("torch.", "refold."))


def _never_drops(module: torch.nn.Module) -> bool:
    return type(module) in _DROPOUTS and object.__getattribute__(module, "p") == 0


def _containers(path: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any, Any]]:
    """A list, dict or set, those in it, and what each of them has."""
    if isinstance(value, (list, dict, set)) and depth < _DEPTH:
        own = _refold_own(value)
        yield path, value, own
        for inner in own.values() if isinstance(own, dict) else own:
            yield from _containers(path, inner, depth + 1)


_DEPTH = 4  # of containers in one another


def _same_items(a: Any, b: Any) -> bool:
    def items(held: Any) -> list[int]:
        held = _refold_own(held)
        if isinstance(held, dict):
            return [id(x) for item in held.items() for x in item]
        return sorted(map(id, held)) if isinstance(held, set) else list(map(id, held))

    return items(a) == items(b)


def owner_of(module: torch.nn.Module, path: str) -> torch.nn.Module:
    found: torch.nn.Module = operator.attrgetter(path)(module) if path else module
    return found
