"""Read a reference file: ``Model``, ``get_inputs()``, ``get_init_inputs()`` (KernelBench contract).

This is the only module that the optimizer and the judge share, so it imports nothing of refold.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import itertools
import linecache
import random
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from refold.constructor import by_position

Constant = int | float | bool | str | tuple[Any, ...]
Sets = Mapping[str, Any] | Sequence[str]

_serial = itertools.count()

# MKL's vector functions choose their kernels at the first call of a process. Where two threads make
# it, one of them may compute with errors of 1e-4; so one thread makes it here.
torch.exp(torch.zeros(16))


class ContractError(ValueError):
    """A file does not keep the contract; one line: what was expected, what came, what to do."""


class ArgumentError(ContractError):
    """A path or an override that was given is wrong; the file itself may be right."""


@dataclass(frozen=True)
class Reference:
    """A loaded reference (or candidate) file.

    ``source`` is the text as written, ``source_with_sets`` the text that was executed, with the
    overridden constants in place. ``constants`` are the module-level constants that ``--set`` may
    override, with the values in force.
    """

    path: Path
    source: str
    source_with_sets: str
    module: ModuleType = field(repr=False)
    constants: Mapping[str, Constant]
    sets: Mapping[str, Constant]
    class_name: str = "Model"

    @property
    def namespace(self) -> dict[str, Any]:
        """The executed module's globals."""
        return vars(self.module)

    @property
    def model_class(self) -> type[nn.Module]:
        """The contract's class."""
        cls: type[nn.Module] = self.namespace[self.class_name]
        return cls

    def init_inputs(self, seed: int = 0) -> list[Any]:
        """Constructor arguments in order; ``[]`` where the file has no ``get_init_inputs``."""
        make = self.namespace.get("get_init_inputs", list)
        seed_everything(seed)
        return self._listed("get_init_inputs", lambda: by_position(self.model_class, make()))

    def make(self, seed: int = 0, init: Sequence[Any] | dict[str, Any] | None = None) -> nn.Module:
        """Built under ``torch.manual_seed(seed)``; ``init``: other arguments, or by name."""
        arguments, build = self.init_inputs(seed) if init is None else init, self.model_class
        seed_everything(seed)
        try:
            module = build(**init) if isinstance(init, dict) else build(*arguments)
        except (Exception, SystemExit) as error:
            raise ContractError(
                f"{self.path}: expected {self.class_name}(*get_init_inputs()) to build a module, "
                f"came {_said(error)}; make the constructor accept {len(arguments)} argument(s)"
            ) from error
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            if is_lazy(value):
                raise ContractError(
                    f"{self.path}: expected parameters that have a shape, came a lazy one, {name}; "
                    "give its layer all of its sizes"
                )
        return module

    def inputs(self, seed: int = 0) -> list[Any]:
        """One list of forward arguments, drawn under ``seed``."""
        seed_everything(seed)
        return self._listed("get_inputs", self.namespace["get_inputs"])

    def _listed(self, name: str, function: Any) -> list[Any]:
        try:
            value = function()
        except (Exception, SystemExit) as error:
            raise ContractError(
                f"{self.path}: expected {name}() to return a list of arguments, came "
                f"{_said(error)}; fix {name}"
            ) from error
        if not isinstance(value, list | tuple):
            cure = "list its values in the order of the parameters"
            cure = cure if isinstance(value, dict) else "return [x] instead of x"
            raise ContractError(
                f"{self.path}: expected {name}() to return a list or tuple, came "
                f"{type(value).__name__}; {cure}"
            )
        return list(value)


# for each that could come torch.manual_seed takes the stack down: a quarter of a millisecond
_BUILT = (torch.cuda._is_compiled(), torch.xpu._is_compiled(), torch.backends.mps.is_built())
_DEVICES = any(_BUILT) or hasattr(torch, torch._C._get_privateuse1_backend_name())


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), ``random`` and, if it is in use, numpy."""
    (torch.manual_seed if _DEVICES else torch.default_generator.manual_seed)(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def load(
    path: str | Path,
    sets: Sets = (),
    class_name: str = "Model",
    *,
    needs_inputs: bool = True,
    unknown_sets: str = "error",
) -> Reference:
    """Execute ``path`` with ``sets`` applied and check the contract.

    Args:
        path: the file.
        sets: ``{"NAME": value}`` or ``["NAME=VALUE", ...]``, overriding module-level constants
            before the rest of the file uses them.
        class_name: ``Model`` for references, ``ModelNew`` for candidates.
        needs_inputs: whether a missing ``get_inputs`` is an error.
        unknown_sets: ``error``, or ``ignore`` for candidates that lack the constant.

    Raises:
        ContractError: the file does not keep the contract.
        ArgumentError: the path or an override is wrong.
    """
    path = Path(path)
    try:
        with tokenize.open(path) as file:  # as Python reads it: with its mark, or in its encoding
            source = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"{path}: expected a readable Python file, came {_said(error)}; check the path"
        ) from error
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        raise ContractError(
            f"{where}: expected Python source, came {_said(error)}; fix the syntax"
        ) from error
    text, constants, applied = apply_sets(source, tree, sets, str(path), unknown_sets)
    module = _execute(path, text, changed=text != source)
    cls = getattr(module, class_name, None)
    if cls is None:
        names = sorted(n for n, v in vars(module).items() if _is_own_class(v, module)) or ["none"]
        raise ContractError(
            f"{path}: expected a class named {class_name}, came classes: {', '.join(names)}; "
            f"rename the class to {class_name}"
        )
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise ContractError(
            f"{path}: expected {class_name} to be a subclass of torch.nn.Module, came {cls!r}; "
            f"derive it from nn.Module"
        )
    if needs_inputs and not callable(getattr(module, "get_inputs", None)):
        raise ContractError(
            f"{path}: expected a function get_inputs(), came none; define it to return a list of "
            f"the forward arguments"
        )
    return Reference(path, source, text, module, constants, applied, class_name)


def apply_sets(
    source: str, tree: ast.Module, sets: Sets, where: str = "file", unknown: str = "error"
) -> tuple[str, dict[str, Constant], dict[str, Constant]]:
    """Rewrite module-level constants in ``source``.

    Returns the new text (the same text outside the replaced values), all constants with the
    values in force, and those applied.

    Raises:
        ArgumentError: an unknown name, or a value of another type.
    """
    wanted = dict(_pairs(sets, where))
    before = dict(_constants(tree))
    applied: dict[str, Constant] = {}
    for name, raw in wanted.items():
        if name not in before:
            if unknown == "ignore":
                continue
            names = ", ".join(f"{n}={v!r}" for n, v in before.items()) or "none"
            raise ArgumentError(
                f"{where}: expected --set to name a module-level constant, came {name!r}; "
                f"constants here: {names}"
            )
        applied[name] = _parse(name, raw, before[name], where)
    if not applied:
        return source, before, applied
    lines = source.splitlines(keepends=True)
    edits: dict[tuple[int, int], str] = {}
    starts = [0, *itertools.accumulate(len(line.encode()) for line in lines)]
    for name, value in _assignments(tree):
        if name in applied and value.end_lineno is not None and value.end_col_offset is not None:
            begin = starts[value.lineno - 1] + value.col_offset
            end = starts[value.end_lineno - 1] + value.end_col_offset
            replacement = repr(applied[name])
            if edits.setdefault((begin, end), replacement) != replacement:
                raise ArgumentError(
                    f"{where}:{value.lineno}: expected one value for names that are bound to one, "
                    f"came --set {name}={replacement} beside {edits[begin, end]}; give one of them"
                )
    data = source.encode()
    for (begin, end), replacement in sorted(edits.items(), reverse=True):
        data = data[:begin] + replacement.encode() + data[end:]
    text = data.decode()
    return text, dict(_constants(ast.parse(text))), applied


def _pairs(sets: Sets, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(sets, Mapping):
        yield from sets.items()
        return
    if isinstance(sets, str):
        sets = [sets]
    for item in sets:
        name, equals, value = item.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ArgumentError(
                f"{where}: expected --set NAME=VALUE, came {item!r}; write e.g. batch_size=16"
            )
        yield name.strip(), value.strip()


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Module-level ``NAME = value`` (also annotated, ``A, B = 1, 2``, ``A = B = 1``), in order.

    Names that one statement binds to one value are one constant: setting either sets both.
    """
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            if isinstance(statement.target, ast.Name):
                yield statement.target.id, statement.value
            continue
        if not isinstance(statement, ast.Assign):
            continue
        value = statement.value
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, value
            elif (
                isinstance(target, ast.Tuple)
                and isinstance(value, ast.Tuple)
                and len(target.elts) == len(value.elts)
            ):
                for part, expression in zip(target.elts, value.elts, strict=True):
                    if isinstance(part, ast.Name):
                        yield part.id, expression


def _constants(tree: ast.Module) -> Iterator[tuple[str, Constant]]:
    known: dict[str, Constant] = {}
    for name, expression in _assignments(tree):
        try:
            known[name] = _evaluate(expression, known)
        except (KeyError, TypeError, ValueError, ArithmeticError):
            known.pop(name, None)
    yield from known.items()


def _small(exponent: Any) -> Any:
    """Of what may take for ever otherwise: no size or scale is beyond."""
    if exponent > 64:
        raise ValueError("not a constant that is evaluated")
    return exponent


_BINARY: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.LShift: lambda a, b: a << _small(b),
    ast.Pow: lambda a, b: a ** _small(b),
}


def _evaluate(node: ast.expr, known: Mapping[str, Constant]) -> Constant:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | bool | str):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate(e, known) for e in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand: Any = _evaluate(node.operand, known)
        return -operand  # type: ignore[no-any-return]
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, known), _evaluate(node.right, known)
        if isinstance(left, int | float) and isinstance(right, int | float):
            result: Constant = _BINARY[type(node.op)](left, right)
            return result
    raise ValueError("not a constant")


def _parse(name: str, raw: Any, like: Constant, where: str) -> Constant:
    """``raw`` (text or a value) as a constant of ``like``'s type."""
    kind = type(like)
    try:
        value = raw
        if isinstance(raw, str) and kind is not str:
            if kind is bool and raw.lower() in {"true", "false"}:
                value = raw.lower() == "true"
            else:
                value = _evaluate(ast.parse(raw, mode="eval").body, {})
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is kind:
            return value
    except (SyntaxError, KeyError, TypeError, ValueError, ArithmeticError):
        pass
    raise ArgumentError(
        f"{where}: expected --set {name} to be {kind.__name__} like {like!r}, came {raw!r}; "
        f"give a value of that type"
    )


class _TextLoader(importlib.machinery.SourceFileLoader):
    """Executes given text under a path, so that ``inspect.getsource`` shows what runs."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec", dont_inherit=True)


def _execute(path: Path, text: str, changed: bool) -> ModuleType:
    serial = next(_serial)
    name = f"refold_file_{serial}_{''.join(c if c.isalnum() else '_' for c in path.stem)}"
    # Changed text gets a name of its own, or linecache would show the file as it is on disk.
    shown = f"{path.resolve()}" + (f"<set {serial}>" if changed else "")
    loader = _TextLoader(name, shown, text)
    spec = importlib.util.spec_from_loader(name, loader, origin=shown)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = shown
    sys.modules[name] = module
    linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    folder = str(path.resolve().parent)
    sys.path.append(folder)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ContractError(
            f"{path}: expected the file to import, came {_said(error)}; "
            f"run `python {path.name}` to see the whole traceback"
        ) from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def _is_own_class(value: Any, module: ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
