"""Run torch.export on a module.

The export keeps every ATen op whole (`run_decompositions({})`, where a call writes at all: the
default table would explode logsumexp and the like) and lets every size vary that the module lets
vary (`Dim.AUTO`). It is given tensors alone: containers are made anew inside, so any class of them
will do.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import Dim as ExportDim
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import config as fx_config
from torch.fx.experimental import proxy_tensor

from refold.capture.arguments import Arguments, carried, no_global_hooks, set_at, value_at
from refold.capture.captured import attribute
from refold.capture.containers import PLAIN, Apart
from refold.capture.draws import drawn_by
from refold.capture.functional import functional
from refold.capture.lifted import Lifted
from refold.capture.numbers import as_numbers
from refold.capture.outside import outside_kept
from refold.capture.shape_rules import shapes_at_once
from refold.capture.sizes import AtOnce, check_sizes
from refold.capture.values import Axes, Axis, Bound, CaptureError, Equal, SizeError
from refold.capture.watch import Watch
from refold.meanwhile import Meanwhile, uncollected, unwarned

INNER = "inner"  # under this name the module lies in what is exported


@dataclass(frozen=True)
class Exported:
    """A program and the conditions on sizes under which it is the module, as Python text over
    forward's own parameters. Sizes that must be fixed or equal are so in the program itself.

    literals: the names of those constants that forward makes anew at each call, of numbers. result,
    assigned: trees of the result and of the attributes that forward sets, over the program's
    results. drawn: what its calls draw, in their order (`drawn_by`).
    """

    program: ExportedProgram
    conditions: tuple[str, ...]
    literals: frozenset[str]
    result: Any
    assigned: Mapping[str, Any]
    watch: Watch
    drawn: tuple[str, ...]


class Flat(torch.nn.Module):
    """A module as a function of tensors that gives tensors.

    lifted: attributes that are arguments, too; their tensors stand behind the others, and behind
    them those that carry numbers, the last of them numbers that are attributes. equal: dimensions
    whose sizes are the same ones. trees: of the result and of the attributes that forward has set,
    after a run.
    """

    arguments: Arguments
    lifted: Sequence[Lifted]
    watch: Watch
    equal: Equal
    at_once: AtOnce
    trees: tuple[Any, dict[str, Any]]

    def __init__(
        self,
        module: torch.nn.Module,
        arguments: Arguments,
        lifted: Sequence[Lifted],
        watch: Watch,
        equal: Equal,
    ) -> None:
        super().__init__()
        self.training = module.training
        self.add_module(INNER, module)
        vars(self).update(arguments=arguments, lifted=lifted, watch=watch, equal=equal)
        vars(self).update(at_once=AtOnce(len(arguments.tensors)))

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        module, watch = getattr(self, INNER), self.watch
        for (i, a), (j, b) in self.equal:  # from here on one size stands for both
            torch._check(tensors[i].shape[a] == tensors[j].shape[b])  # type: ignore[no-untyped-call]
        places = dict(module.named_modules(remove_duplicate=False))
        first = len(self.arguments.tensors)
        last = first + len(self.lifted)
        given, states = tensors[:first], tensors[first:last]
        numbers = [carried(carrier) for carrier in tensors[last:]]
        settings = self.arguments.settings if numbers else ()  # else they are the example's
        before = [o.put(module, value) for o, value in zip(self.lifted, states, strict=True)]
        settled = {place: value_at(module, place) for place in settings}
        try:
            for place, value in zip(settings, numbers[len(numbers) - len(settings) :], strict=True):
                set_at(module, place, value)
            with as_numbers(numbers), self.at_once, watch.during():
                result, paths = self.arguments.call(module, given, numbers)
        except SizeError as error:
            error.expr = _axes(error, tensors)
            raise
        finally:
            for place, value in settled.items():
                set_at(module, place, value)
            # backwards: a part may be held in two places
            for one, value in zip(reversed(self.lifted), reversed(before), strict=True):
                one.put(module, value)
        apart = Apart(_held_objects(places) | paths)
        tree = apart.tree(result, "forward returns")
        assigned = {
            f"{path}.{name}".strip("."): apart.tree(value, f"forward sets the attribute {name} to")
            for (path, name), value in watch.assigned.items()
        }
        if assigned and any(carrier.dim() == 0 for carrier in tensors[last:]):
            raise CaptureError("forward sets an attribute, maybe to a number that varies")
        vars(self)["trees"] = tree, assigned
        known = {id(t) for t in (*tensors, *module.parameters())}
        shown = [t for t in apart.leaves if isinstance(t, torch.Tensor)]
        # a view of a parameter has its mark, and is one still
        made = [t for t in shown if not {id(t), id(t._base)} & known]
        if any(t.requires_grad for t in made):
            raise CaptureError("forward makes results with gradients, whatever its caller asks for")
        kinds = {t.is_inference() for t in shown}
        if len(kinds) > 1:
            raise CaptureError("forward makes some of its results in inference mode, others not")
        watch.inference = True in kinds
        return tuple(apart.leaves)


def _held_objects(places: Mapping[str, torch.nn.Module]) -> dict[int, str]:
    """The text that reads each object which a module holds, by its id: a result that holds such an
    object, a configuration for example, holds the very one."""
    usual = vars(torch.nn.Module())
    unlike = (torch.Tensor, torch.nn.Module, type, tuple, frozenset, str, bytes, int, float)
    return {
        id(value): attribute(f"{path}.{name}".strip("."))
        for path, m in places.items()
        for name, value in vars(m).items()
        if name not in usual and value is not None and not isinstance(value, unlike)
        if not callable(value) and type(value) not in PLAIN
    }


@contextlib.contextmanager
def _without_notes() -> Iterator[None]:
    """Where in Python each node was made and how its value would lie in memory is not noted, nor is
    what torch.export does: who notes that asks for handlers alone, not whether they are heard."""
    trace = logging.getLogger("torch.__trace")
    changes: tuple[tuple[Any, str, Any], ...] = (
        (fx_config, "do_not_emit_stack_traces", True),
        (proxy_tensor, "_extract_tensor_metadata", lambda value: None),
        (trace, "handlers", []),
    )
    before = [(place, name, vars(place)[name]) for place, name, _ in changes if name in vars(place)]
    for place, name, value in changes:
        if name in vars(place):
            setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


# Without what takes a third of a capture, and nobody asks for.
_lean = Meanwhile(_without_notes)


def exported(
    module: torch.nn.Module, arguments: Arguments, lifted: Sequence[Lifted], bound: Bound
) -> Exported:
    """The program of a call of `module` in its present mode.

    Raises SizeError where sizes stand in the way, CaptureError, and what torch.export raises.
    """
    fixed = bound.fixed
    watch = Watch(module)
    flat = Flat(module, arguments, lifted, watch, bound.equal)
    states = [one.value(module).detach() for one in lifted]
    tensors = (*arguments.tensors, *states, *arguments.carriers)
    first = len(arguments.tensors)
    tables = {first + i for i, one in enumerate(lifted) if one.keys}  # of the sizes that they have
    specs = tuple(
        {
            a: ExportDim.AUTO
            for a in range(t.dim())
            if i not in tables and (i, a) not in (fixed or ())
        }
        for i, t in enumerate(tensors)
    )
    shapes = (specs,) if fixed is not None else None
    program = None
    quiet = unwarned, torch.no_grad(), _silent(), uncollected, _lean, no_global_hooks()
    try:
        with contextlib.ExitStack() as around:
            for each in (*quiet, shapes_at_once(), outside_kept(module)):
                around.enter_context(each)
            program = torch.export.export(flat, tensors, dynamic_shapes=shapes, strict=False)
            if watch.changed:
                raise CaptureError(f"forward changes the attribute {watch.changed[0]}")
            if watch.problem is not None:
                raise watch.problem
            if flat.at_once.error is not None:
                raise flat.at_once.error
            guards = getattr(program, "_guards_code", None) or []
            held = [*arguments.places, *(one.read(module) for one in lifted)]
            paths = [*(f"{path}.shape[{{0}}]" for path in held), *arguments.counted]
            metas = _metas(program)
            conditions = tuple(_condition(g.strip(), paths, metas) for g in guards if shapes)
            # decomposing drops what nothing reads, though it may have drawn or written
            drawn = drawn_by(program.graph.nodes)
            for node in program.graph.nodes:
                _check_effects(node)
            check_sizes(program.graph)
            literals = frozenset(_literals(program))
            decomposed = functional(program)
    except Exception as error:
        error.reads_mode = watch.reads_mode  # type: ignore[attr-defined]
        error.once = watch.sets_what_it_read  # type: ignore[attr-defined]
        if isinstance(error, SizeError) and program is not None:
            error.expr = blamed(error, program)
        raise
    unique = tuple(dict.fromkeys(filter(None, conditions)))
    result, assigned = vars(flat)["trees"]
    return Exported(decomposed, unique, literals, result, assigned, watch, drawn)


def blamed(error: SizeError, program: ExportedProgram | None) -> Axes:
    """The dimensions of tensors in which the sizes are that stand in the way."""
    if isinstance(error.expr, frozenset):
        return error.expr
    return frozenset() if program is None else _axes(error, _metas(program))


def _axes(error: SizeError, tensors: Sequence[torch.Tensor]) -> Axes:
    """The dimensions of tensors, by their places, in which an error's sizes are."""
    if error.expr is None or isinstance(error.expr, frozenset):
        return error.expr or frozenset()
    symbols = error.expr.free_symbols
    return frozenset(
        (i, a)
        for i, tensor in enumerate(tensors)
        for a, size in enumerate(tensor.shape)
        if not isinstance(size, int) and size.node.expr.free_symbols & symbols
    )


def _metas(program: ExportedProgram) -> list[torch.Tensor]:
    """The arguments as they are while torch.export follows the module."""
    places = (n for n in program.graph.nodes if n.op == "placeholder")
    specs = program.graph_signature.input_specs
    pairs = zip(places, specs, strict=True)
    return [n.meta["val"] for n, spec in pairs if spec.kind == InputKind.USER_INPUT]


def _literals(program: ExportedProgram) -> Iterator[str]:
    """The constants that a call like torch.tensor([1, 2]) makes: every one is copied before it is
    read. Others, of a list or a global, are the very tensors, which may be written to later."""
    places = (n for n in program.graph.nodes if n.op == "placeholder")
    for node, spec in zip(places, program.graph_signature.input_specs, strict=True):
        made = [u.target is torch.ops.aten.lift_fresh_copy.default for u in node.users]
        if spec.kind == InputKind.CONSTANT_TENSOR and made and all(made):
            yield spec.target


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


# a size compared with a number or another size: the program's own shapes and ranges say so
_NAME = r"L\['tensors'\]\[(\d+)\]\.size\(\)\[(\d+)\]"
_SIZE = re.sub(r"\((\\d\+)\)", r"\1", _NAME)
_PLAIN_GUARD = re.compile(rf"(?:\d+ <= )?{_SIZE}(?: (?:==|>=|<=) (?:\d+|{_SIZE}))?")
_STRIDES = re.compile(r"L\['tensors'\]\[\d+\]\.stride\(\)")
_ARITHMETIC = re.compile(r"(?:[\d\s+*/%()<>=!,-]|\b(?:and|or|not|min|max)\b)*")


def _condition(guard: str, paths: Sequence[str], metas: Sequence[torch.Tensor]) -> str:
    """A guard of torch.export's as Python text over forward's parameters; empty for a plain one.

    One on strides says nothing either: PyTorch asks in order to lay a result out, as of a cache of
    keys that is a view, while kernels lay out for each call; where forward itself asks, the watch
    sees it.
    Raises SizeError for what is no arithmetic, and for an equation that the program's shapes do
    not say by themselves: nothing would know that two of them are equal.
    """
    if all(_PLAIN_GUARD.fullmatch(part.strip()) for part in guard.split(" and ")):
        return ""
    if _STRIDES.search(guard):
        return ""
    found = frozenset((int(i), int(a)) for i, a in re.findall(_NAME, guard))
    if not _ARITHMETIC.fullmatch(re.sub(_SIZE, "0", guard)):
        raise SizeError(f"forward branches on sizes ({_over(guard, paths)})", found)
    sides = guard.split("==")
    if len(sides) == 2 and "%" not in guard and "//" not in guard:
        left, right = (_value(side, metas) for side in sides)
        if sympy.expand(left - right) != 0:
            said = f"sizes depend on each other ({_over(guard, paths)})"
            raise SizeError(said, found, _paired(left - right, found, metas))
    return _over(guard, paths)


def _paired(difference: Any, axes: Axes, metas: Sequence[torch.Tensor]) -> Equal:
    """Pairs of dimensions, of one size in the example, that make a difference of polynomials zero
    if their sizes are the same: a batch of logits and one of labels. Nothing where none do."""
    first: dict[Any, tuple[Axis, int]] = {}
    for i, a in sorted(axes):
        size = metas[i].shape[a]
        if not isinstance(size, int) and (expr := size.node.expr).is_Symbol:
            first.setdefault(expr, ((i, a), size.node.hint))
    pairs: dict[Axis, Axis] = {}
    for (one, (axis, size)), (other, (to, same)) in itertools.combinations(first.items(), 2):
        free = axis not in pairs and {one, other} <= difference.free_symbols
        if free and size == same and axis[0] != to[0]:
            pairs[axis] = to
            difference = sympy.expand(difference.subs(other, one))
    return tuple(pairs.items()) if difference == 0 else ()


def _value(text: str, metas: Sequence[torch.Tensor]) -> Any:
    """A polynomial of sizes, over the symbols of torch.export."""
    sizes = [[s if isinstance(s, int) else s.node.expr for s in m.shape] for m in metas]
    named = re.sub(_NAME, r"sizes[\1][\2]", text)
    return sympy.sympify(eval(named, {"sizes": sizes, "max": sympy.Max, "min": sympy.Min}))


def _over(guard: str, paths: Sequence[str]) -> str:
    """A guard over forward's parameters. paths: what reads a size of each tensor, with a place for
    the dimension."""
    return re.sub(_NAME, lambda m: paths[int(m[1])].format(m[2]), guard)


def _check_effects(node: torch.fx.Node) -> None:
    """Raises CaptureError for a call that writes without saying so, and for tensors that are not
    dense: what memory theirs is nobody could follow."""
    target = node.target
    values = torch.utils._pytree.tree_leaves(node.meta.get("val")) if node.users else ()
    if any(isinstance(v, torch.Tensor) and v.layout is not torch.strided for v in values):
        raise CaptureError("forward computes with a tensor that is not dense")
    if target is torch.ops.aten.instance_norm.default and node.args[3] is not None and node.args[5]:
        raise CaptureError(f"forward writes running statistics of its own accord ({target})")


def constants_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors that forward reads beside arguments, parameters and buffers, by the names that
    they would have as attributes of the module."""
    held = program.constants.items()
    return {without_inner(k): v for k, v in held if isinstance(v, torch.Tensor)}


def without_inner(name: str) -> str:
    """A name in what is exported, as it is in the module."""
    return name.removeprefix(f"{INNER}.")
