"""Run torch.export on a module.

The export keeps every ATen op whole (`run_decompositions({})`: the default table would explode
logsumexp and the like) and lets every size vary that the module lets vary (`Dim.AUTO`).
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim as ExportDim
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from refold.capture.shape_rules import shapes_at_once
from refold.capture.sizes import check_sizes
from refold.capture.values import CaptureError


@dataclass(frozen=True)
class Exported:
    """A program and the conditions on sizes under which it is the module, as Python text over
    forward's own parameters. Sizes that must be fixed or equal are so in the program itself.

    literals: the names of those constants that forward makes anew at each call, of numbers.
    """

    program: ExportedProgram
    conditions: tuple[str, ...]
    literals: frozenset[str]


def exported(module: torch.nn.Module, args: tuple[Any, ...], axes: int | None) -> Exported:
    """The program of `module(*args)` in its present mode.

    axes: how many leading dimensions of every tensor may vary, where the module lets them; None for
    all. Raises CaptureError where conditions on sizes are no arithmetic, and what torch.export
    raises.
    """

    def spec(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return None
        return dict.fromkeys(range(x.dim())[:axes], ExportDim.AUTO)

    shapes = _by_parameter(module, pytree.tree_map(spec, args)) if axes != 0 else None
    with warnings.catch_warnings(), torch.no_grad(), _silent(), shapes_at_once():
        warnings.simplefilter("ignore")
        with _without_assignments(module):
            program = torch.export.export(module, args, dynamic_shapes=shapes, strict=False)
        guards = getattr(program, "_guards_code", None) or []
        conditions = tuple(_condition(g.strip()) for g in guards) if axes != 0 else ()
        tied = [c for c in conditions if "==" in c and "%" not in c]
        if axes is None and tied:
            raise CaptureError(f"sizes depend on each other ({tied[0]})")
        # decomposing drops what nothing reads, though it may have drawn or written
        for node in program.graph.nodes:
            _check_effects(node)
        check_sizes(program.graph)
        decomposed: ExportedProgram = program.run_decompositions({})
        unique = tuple(dict.fromkeys(filter(None, conditions)))
        return Exported(decomposed, unique, frozenset(_literals(program)))


def _literals(program: ExportedProgram) -> Iterator[str]:
    """The constants that a call like torch.tensor([1, 2]) makes: every one is copied before it is
    read. Others, of a list or a global, are the very tensors, which may be written to later."""
    places = (n for n in program.graph.nodes if n.op == "placeholder")
    for node, spec in zip(places, program.graph_signature.input_specs, strict=True):
        made = [u.target is torch.ops.aten.lift_fresh_copy.default for u in node.users]
        if spec.kind == InputKind.CONSTANT_TENSOR and made and all(made):
            yield spec.target


@contextlib.contextmanager
def _without_assignments(module: torch.nn.Module) -> Iterator[None]:
    """Raises CaptureError in the end where forward has set an attribute that is no buffer, or has
    changed a list, dict or set among them: the program would not. PyTorch's own modules may."""
    found: list[str] = []
    own = {k: m for k, m in module.named_modules() if not type(m).__module__.startswith("torch.")}
    paths = {id(m): f"{path}." if path else "" for path, m in own.items()}
    plain = torch.nn.Module.__setattr__
    usual = vars(torch.nn.Module())
    held = [
        (f"{paths[id(m)]}{name}", value, copy.copy(value))
        for m in own.values()
        for name, value in vars(m).items()
        if name not in usual and isinstance(value, (list, dict, set))
    ]

    def watching(self: torch.nn.Module, name: str, value: Any) -> None:
        if id(self) in paths and not any(
            name in getattr(self, kind) for kind in ("_buffers", "_parameters", "_modules")
        ):
            found.append(f"{paths[id(self)]}{name}")
        plain(self, name, value)

    torch.nn.Module.__setattr__ = watching  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.__setattr__ = plain  # type: ignore[method-assign]
        for path, value, before in held:
            if not _same_items(value, before):
                found.append(path)
                value.clear()
                value.extend(before) if isinstance(value, list) else value.update(before)
    if found:
        raise CaptureError(f"forward sets the attribute {found[0]}, which is no buffer")


def _same_items(a: Any, b: Any) -> bool:
    def items(held: Any) -> list[int]:
        if isinstance(held, dict):
            return [id(x) for item in held.items() for x in item]
        return sorted(map(id, held)) if isinstance(held, set) else list(map(id, held))

    return items(a) == items(b)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what PyTorch logs and prints: why an export failed is ours to say, in one line."""
    log = logging.getLogger("torch")
    kept, log.disabled = log.disabled, True
    inner = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    inner = [one for one in inner if one.name.startswith("torch.") and not one.disabled]
    for one in inner:
        one.disabled = True
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        log.disabled = kept
        for one in inner:
            one.disabled = False


def _by_parameter(module: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """One entry for each parameter of forward: what *args takes is one tuple."""
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return given
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*given[:first], tuple(given[first:]))


# a size compared with a number or another size: the program's own shapes and ranges say so
_SIZE = r"L\[[^\]]*\](?:\[[^\]]*\])*\.size\(\)\[\d+\]"
_PLAIN_GUARD = re.compile(rf"(?:\d+ <= )?{_SIZE}(?: (?:==|>=|<=) (?:\d+|{_SIZE}))?")
_ARITHMETIC = re.compile(r"(?:[\d\s+*/%()<>=!-]|\band\b|\bor\b|\bnot\b)*")


def _condition(guard: str) -> str:
    """A guard of torch.export's as Python text over forward's parameters; empty for a plain one."""
    if all(_PLAIN_GUARD.fullmatch(part.strip()) for part in guard.split(" and ")):
        return ""
    if not _ARITHMETIC.fullmatch(re.sub(_SIZE, "0", guard)):
        raise CaptureError(f"forward branches on sizes ({guard})")
    return re.sub(r"L\['(\w+)'\]", r"\1", guard).replace(".size()[", ".shape[")


def _check_effects(node: torch.fx.Node) -> None:
    """Raises CaptureError for a call that draws random numbers, or writes without saying so."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return
    drawing = torch.Tag.nondeterministic_seeded in target.tags
    if drawing and not _draws_nothing(target, node.args, node.kwargs):
        raise CaptureError(f"forward draws random numbers ({target})")
    if target is torch.ops.aten.instance_norm.default and node.args[3] is not None and node.args[5]:
        raise CaptureError(f"forward writes running statistics of its own accord ({target})")


_MAY_DRAW = re.compile("dropout|scaled_dot_product|lstm|gru|rnn|rrelu")


def _draws_nothing(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Does a call that may draw random numbers draw none, its probability or mode being off?"""
    if not _MAY_DRAW.search(target.overloadpacket.__name__):
        return False
    given = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    given |= {a.name: v for a, v in zip(target._schema.arguments, args, strict=False)}
    given |= dict(kwargs)
    off = [given.get(name) == 0 for name in ("p", "dropout", "dropout_p") if name in given]
    off += [given.get(name) is False for name in ("train", "training") if name in given]
    return any(off)
