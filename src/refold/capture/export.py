"""Capture a module in one mode: export it, and read the program as a Graph.

Every size varies that the module lets vary. Where sizes have to be equal, those of one size in the
example are taken for the same. Where a size stands in the way, those that it comes from are fixed;
then all but the leading dimensions are, then all: the graph serves exactly the sizes of the example
there, and others take the original forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from refold.capture.arguments import Arguments, Example
from refold.capture.captured import Captured
from refold.capture.kept import apart_of, kept
from refold.capture.lifted import Lifted, in_containers, to_lift
from refold.capture.program import blamed, constants_of, exported
from refold.capture.reader import Leak, Reader
from refold.capture.twin import NoTwin, alias_of, has_hooks, twin_of
from refold.capture.values import FREE, VALUES, Axes, Bound, CaptureError, SizeError, Unsupported
from refold.capture.watch import owner_of


def capture(
    module: torch.nn.Module,
    example: Example | Sequence[Any],
    *,
    training: bool,
    bound: Bound = FREE,
    as_it_is: bool = False,
) -> Captured:
    """Capture the example's call of `module` in train or eval mode. The module, its modes, buffers
    and attributes, and the random state are left as they were. bound: sizes that are known to stand
    in the way (`Captured.bound`). as_it_is: the modules inside keep the modes that they are in,
    which `train` and `eval` give them all otherwise.

    Raises CaptureError with one line that says why the module cannot be captured.
    """
    if "forward" in vars(module):  # a class's forward, a fast one too, would not be called
        raise CaptureError("the module itself, not its class, has the forward that is called")
    rng = torch.get_rng_state()
    try:
        with kept(module):
            arguments = Arguments(module, Example.of(example))
            try:
                twin = twin_of(module)
            except NoTwin:
                twin = _without_hooks(module)
            try:
                twin.train(training) if not as_it_is else None
            except NotImplementedError as error:  # of programs by torch.export
                raise CaptureError(f"its mode cannot be set: {_first_line(error)}") from error
            try:
                return _captured(twin, module, arguments, bound)
            except Leak:
                module.train(training) if not as_it_is else None
                return _captured(_without_hooks(module), module, arguments, bound)
    finally:
        torch.set_rng_state(rng)


def _without_hooks(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, where no hook would be captured with it, which may go later."""
    if has_hooks(module):
        raise CaptureError("it has hooks, and no copy without them can be made")
    return module


def _captured(
    twin: torch.nn.Module, module: torch.nn.Module, arguments: Arguments, bound: Bound
) -> Captured:
    """What is captured with as many sizes free as the module lets vary."""
    sizes = [(i, a) for i, t in enumerate(arguments.tensors) for a in range(t.dim())]
    but_leading = frozenset((i, a) for i, a in sizes if a)
    lifted: tuple[Lifted, ...] = ()
    moved = False
    for attempt in itertools.count():
        program = None
        try:
            before = twin.training, apart_of(twin)
            made = exported(twin, arguments, lifted, bound)
            if (twin.training, apart_of(twin)) != before:
                if moved or twin.training is not before[0]:
                    raise CaptureError("forward changes the mode of the module, or of a part of it")
                moved = True  # from now on it is what forward makes it
                continue
            if made.watch.computed and attempt < _BLAMED:
                for path, name in made.watch.computed:
                    _compute(twin, module, path, name)
                continue
            needed = in_containers(
                twin, constants_of(made.program), to_lift(twin, made.watch, lifted)
            )
            if needed != lifted:
                lifted = needed
                continue
            program = made.program
            captured = Reader(twin, module, arguments, made, lifted).read()
            return replace(captured, bound=bound)
        except SizeError as error:
            fixed = bound.fixed
            if fixed is None:
                raise
            if not set(error.equal) <= set(bound.equal):
                bound = replace(bound, equal=bound.equal + error.equal)
                continue
            more = blamed(error, program) - fixed if attempt < _BLAMED else Axes()
            rest = None if but_leading <= fixed else fixed | but_leading
            bound = replace(bound, fixed=fixed | more if more else rest)
        except (CaptureError, Leak):
            raise
        except Unsupported as error:
            raise CaptureError(str(error)) from error
        except Exception as error:
            known = CaptureError(_said(error))
            known.reads_mode = getattr(error, "reads_mode", True)
            known.once = getattr(error, "once", False)
            fixed = bound.fixed
            if fixed is None or isinstance(error, GuardOnDataDependentSymNode):
                raise known from error
            # whether sizes are to blame is seen by whether it works where they are fixed
            bound = replace(bound, fixed=None if but_leading <= fixed else fixed | but_leading)
    raise AssertionError("unreachable")


def _compute(twin: torch.nn.Module, module: torch.nn.Module, path: str, name: str) -> None:
    """Let a module and its twin have what a cached property gives, as after a first call."""
    value = getattr(owner_of(module, path), name)
    known = alias_of(value) if isinstance(value, torch.Tensor) else value
    vars(owner_of(twin, path))[name] = known


_BLAMED = 4  # exports after which single sizes are not looked at


def _said(error: Exception) -> str:
    """Why torch.export failed, in one line."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return VALUES
    return f"torch.export cannot capture forward: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
