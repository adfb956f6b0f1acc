"""Kernels for further forms of call, for changed settings and parts, and for parts in modes of
their own, when such calls come."""

from __future__ import annotations

import copy
import enum
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold import pipeline, twin
from refold.capture import Example
from refold.capture.generators import torchs_kept
from refold.capture.twin import apart_of
from refold.changed import SETTINGS, changed, modes
from refold.derive import Options
from refold.runtime.calls import _refold_order
from refold.subclass import Program, program
from refold.varying import Settings, are_apart, are_varied, is_right, numbers, without_numbers

MOST = 8  # further forms of one module that get kernels: a loop that generates has five or more
TRIES = 12  # further forms that are tried: some cannot be captured
WRONG = 64  # forms that are tried beside these, because calls of them turned out to be wrong
COUNTS = 4  # numbers in a place: what has more of them counts, as a position in a sequence does
_OTHER_FORM = "a call of another form than before"
_log = logging.getLogger("refold")
# a capture changes what the whole process has, such as how attributes of modules are read: one
# thread optimizes at a time, and a call that would have kernels made meanwhile takes the original
ALONE = threading.RLock()


def title(cls: type) -> str:
    return f"The original is {cls.__module__}.{cls.__qualname__}"


def measured(result: pipeline.Result) -> dict[str, dict[str, float]]:
    """Of each mode the times of the baselines over the kernels', by the baseline's name."""
    return {
        d.mode.name: {name: t.ratio for name, t in d.contest.timings.items()}
        for d in result.derivations
        if d.contest is not None
    }


def run(
    module: torch.nn.Module,
    example: Example,
    source: str,
    target: str,
    options: Options,
    progress: pipeline.Progress = lambda text: None,
) -> pipeline.Result:
    """What becomes of a module. Where forward sets an attribute that it reads, and to no tensor,
    this is what becomes of a copy behind a first call: forward may set it at that one alone. The
    first call of the module itself then takes the original."""

    def made(module: torch.nn.Module) -> pipeline.Result:
        return pipeline.run(
            module,
            example,
            source,
            title(type(module)),
            *pipeline.target_for(target),
            options,
            progress,
            bind=lambda text: pipeline.bind_for_class(text, module),
        )

    result, modes = made(module), ("both", "train" if module.training else "eval")
    if any(d.once and d.mode.name in modes for d in result.derivations):
        called = _called(module, example)
        later = None if called is None else made(called)
        if later is not None and later.serves(module.training):
            return later
    return result


def _called(module: torch.nn.Module, example: Example) -> torch.nn.Module | None:
    """A copy of a module behind the example's call; None of one that cannot be copied or called."""
    try:
        made = apart_of(module, whole=True)
        args, kwargs = copy.deepcopy((example.args, dict(example.kwargs)))
        with torch.no_grad(), torchs_kept():
            type(made).forward(made, *args, **kwargs)
    except Exception:
        return None
    return made


def form(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What a plan is made for: containers, other values, of tensors the dtype, the device, the
    rank, in which order dimensions lie in memory if it is not their own, and which sizes are 1:
    torch.export takes a size of 1 for a constant, as torch.compile does."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    parts = [str(spec)]
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            sizes = "".join("1" if n == 1 else "n" for n in leaf.shape)
            parts.append(f"{leaf.dtype} {sizes} {leaf.device.type}{_order(leaf)}")
        else:
            plain = isinstance(leaf, (bool, int, float, str, enum.Enum, type(None)))
            parts.append(f"{type(leaf).__name__} {leaf!r}"[:80] if plain else type(leaf).__name__)
    return "; ".join(parts)


def _order(leaf: torch.Tensor) -> str:
    if leaf.layout is not torch.strided:
        return f" {leaf.layout}"
    order = _refold_order(leaf)
    return "" if order == (*range(leaf.dim()),) else f" {order}"


@dataclass
class Growth:
    """Makes a program for a call that no program of a twin takes because of its arguments, or of
    what was changed since and has stayed: settings of modules, such as what a first call with
    labels notes in a configuration; layers appended, replaced or removed; a forward that was
    patched, or globals that it reads.

    Where a program of a form has fixed sizes, others get one that come twice in a row. A form that
    differs from a tried one by its numbers alone gets one when it comes again, unless more than
    COUNTS such forms came: kernels for each position of a sequence would serve one call each. At
    the second such form one is made for all whole numbers from 2 on, or all floats, in the place of
    those that differ. So is one at the third value of a number that is an attribute.

    source: the text that binds Model. tried: the forms for which programs were made, or none was
    gained. grown: how many further ones were made; there are at most MOST, of at most TRIES tried.
    changed, sized: what had changed, and the sizes, that the last call was refused for. none: why
    there are no kernels, by the form and by whether it is in train mode. numbered: forms that
    differ by numbers, by what they are without these, and the numbers of each. wrong: tried
    forms that the original does not take either.
    """

    source: str
    target: str
    options: Options
    tried: frozenset[str]
    grown: int = 0
    trials: int = 0
    changed: str = ""
    sized: str = ""
    none: Mapping[tuple[str, bool], str] = field(default_factory=dict)
    numbered: Mapping[str, Mapping[str, Mapping[str, int | float]]] = field(default_factory=dict)
    wrong: frozenset[str] = frozenset()
    settings: Settings = field(default_factory=Settings)

    def __call__(
        self,
        fast: torch.nn.Module,
        refused: Sequence[Program],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Program | str | None:
        """The program, or why none can be made for such calls, or None where none is made now."""
        if self.spent:
            return None
        if torch.is_grad_enabled() and any(p.requires_grad for p in fast.parameters()):
            return None  # gradients are wanted: the original would run
        if not all(_serves(p, fast) for p in refused):
            return None  # at each call in a mode in which nothing was gained
        if any(is_apart(p, args, kwargs) for p in refused):
            return None
        alike = [p for p in refused if not _is_unlike(p, fast, args, kwargs)]
        since = [changed(p, fast) for p in alike]
        before, self.changed = self.changed, "; ".join(since)
        varied = self.settings.varying(alike, fast, args, kwargs) if all(since) else ()
        rest = [word for p, word in zip(alike, since, strict=True) if are_varied(p, varied)]
        if varied:
            self.changed = "; ".join((f"{SETTINGS} that vary: {varied}", *rest))
            if rest and self.changed != before:  # another setting has changed beside them
                return None
        elif not all(since) or self.changed not in ("", before):
            return None  # what changes from call to call would have new kernels each time
        key = self._key(args, kwargs)
        none = self.none.get((key, fast.training))
        if none is not None:
            return none
        if key in self.tried and not alike:
            sizes = [v.shape for v in pytree.tree_leaves((args, kwargs)) if hasattr(v, "shape")]
            key = f"{key}; sizes {sizes}"
            before, self.sized = self.sized, key
            if key != before:
                return None
        if key in self.tried:
            return None
        varying = self._varying(key, numbers(fast, args, kwargs))
        if varying is None or not ALONE.acquire(blocking=False):
            return None
        try:
            self.tried |= {key}
            self.trials += 1
            what = f"{since[0].split()[0]} were changed" if since else _OTHER_FORM
            _log.warning("refold: %s: kernels are made for it", what)
            made, kept = self._made(fast, refused, Example(args, kwargs, varying, varied))
            self.grown += made is not None
            if (varying or varied) and made is None:  # one number alone may still get kernels
                self.tried -= {key}
                self.settings.fixed.update(varied)
                return kept[fast.training]
            self.none = {**self.none, **{(key, training): why for training, why in kept.items()}}
            return made or kept[fast.training]
        finally:
            ALONE.release()

    def raised(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The original raised an error for a call that got no kernels: its form was no trial."""
        key = self._key(args, kwargs)
        tried = any((key, training) in self.none for training in (False, True))
        if tried and key not in self.wrong and len(self.wrong) < WRONG:
            self.wrong |= {key}
            self.trials -= 1

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return "; ".join(filter(None, (form(args, kwargs), self.changed)))

    @property
    def spent(self) -> bool:
        """Whether nothing more is made."""
        return self.grown >= MOST or self.trials >= TRIES

    def _varying(self, key: str, numbers: Mapping[str, int | float]) -> frozenset[str] | None:
        """The arguments that are to vary as sizes do. None for a form that gets no kernels now:
        only numbers tell it from a tried one, and it came for the first time, or is one of many."""
        plain = without_numbers(key)
        if all(without_numbers(t) != plain for t in self.tried):
            return frozenset()
        before = self.numbered.get(plain, {})
        if len(before) > COUNTS:
            return None
        if key in before:
            return frozenset()
        self.numbered = {**self.numbered, plain: {**before, key: numbers}}
        if len(before) != 1:
            return None
        (first,) = before.values()
        return frozenset(n for n, v in numbers.items() if v != first.get(n)) or None

    def _made(
        self, fast: torch.nn.Module, refused: Sequence[Program], example: Example
    ) -> tuple[Program | None, Mapping[bool, str]]:
        """The program, and why it does not serve train mode (True) or eval mode. It is made in a
        thread of its own: modes of the caller's are the caller's."""
        found: list[tuple[Program | None, Mapping[bool, str]]] = []

        def make() -> None:
            try:
                found.append(self._program(fast, refused, example))
            except Exception as error:
                found.append((None, dict.fromkeys((False, True), str(error))))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        _, kept = found[0]
        if fast.training in kept:
            _log.warning("refold: such calls take the original forward: %s", kept[fast.training])
        return found[0]

    def _program(
        self, fast: torch.nn.Module, refused: Sequence[Program], example: Example
    ) -> tuple[Program | None, Mapping[bool, str]]:
        module = apart_of(twin.original(fast))
        args, kwargs = pytree.tree_map(_plain, (example.args, dict(example.kwargs)))
        example = replace(example, args=args, kwargs=kwargs)
        if not are_apart(module, twin.original(fast), example.settings):
            shared = "what holds a number that varies cannot be copied as it stands"
            return None, dict.fromkeys((False, True), shared)
        options = replace(self.options, tune=False, as_it_is=True)
        result = run(module, example, self.source, self.target, options)
        kept = {t: _why_kept(result, t) for t in (False, True) if not result.serves(t)}
        if result.text is None:
            return None, kept
        made = program(result.text, type(module))
        if made in refused:  # it knows code and globals as they were
            made = Program(result.text, type(module))
        if (example.counted or example.settings) and not is_right(made, module, example):
            return None, dict.fromkeys((False, True), "forward asks of what class a number is")
        return made, kept


def _plain(value: Any) -> Any:
    """A tensor made in inference mode as an ordinary one, which can be captured."""
    if isinstance(value, torch.Tensor) and value.is_inference():
        return torch.empty_like(value).copy_(value)
    return value


def is_apart(
    program: Program,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    autocast: bool = False,
) -> bool:
    """True of a call under modes, tracers and transforms, and of one that gives tensors of other
    classes, or what stands for them in torch.fx: no program would take it, and its form may come
    again without them. autocast: it alone does not count."""
    space = program.namespace
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    if space._refold_traced() or any(isinstance(v, torch.fx.Proxy) for v in leaves):
        return True
    if any(type(v) is not torch.Tensor or v.is_nested for v in tensors):
        return True
    device = max((v.get_device() for v in tensors), default=-1)
    reason = space._refold_context(device, space._refold_file.kind)
    return reason is not None and not (autocast and reason == "autocast is active")


def _serves(program: Program, fast: torch.nn.Module) -> bool:
    """Whether a program has kernels for the mode that a module is in."""
    known = program.namespace._refold_file.modes
    return any(name in known for name in modes(fast))


def _is_unlike(
    program: Program, fast: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """True if a program refuses a call for its arguments, whatever the module's state."""
    try:
        given = Example(args, kwargs).bind(fast)
    except TypeError:
        return False  # the original raises
    given.apply_defaults()
    for name in modes(fast):
        if name in program.namespace._refold_file.modes:
            of_mode = getattr(program.namespace, f"_refold_misfit_{name}", None)
            misfit = of_mode or program.namespace._refold_misfit
            return misfit(fast, *given.arguments.values()) is not None
    return False  # the original is kept in this mode


def _why_kept(result: pipeline.Result, training: bool) -> str:
    """Why there are no kernels for a mode, train or eval."""
    of_mode = "both", "train" if training else "eval"
    found = [m.kept for m in result.modes if m.kept and m.name in of_mode]
    return "; ".join(dict.fromkeys(found or result.reasons))
