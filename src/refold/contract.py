"""The contract: a file with `Model`, `get_inputs()` and `get_init_inputs()`.

`load` runs such a file and answers with a `Reference`, or raises `ContractError` with one line that
says what was expected, what came and what to do. Constants at the top level can be overridden: the
assignment itself is rewritten, so that everything derived from the constant follows.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Constant = bool | int | float | str | tuple[Any, ...] | list[Any]


class ContractError(Exception):
    """The file does not keep the contract; the text is one line for the user."""


@dataclass(frozen=True)
class Reference:
    """A loaded file.

    path: where it came from. source: its text with the overrides applied. module: its namespace.
    constants: the top-level constants that can be overridden, by name, with their present values.
    """

    path: Path
    source: str
    module: types.ModuleType
    class_name: str
    constants: Mapping[str, Constant]

    @property
    def model_class(self) -> type[torch.nn.Module]:
        cls: type[torch.nn.Module] = getattr(self.module, self.class_name)
        return cls

    def init_inputs(self) -> list[Any]:
        """The arguments of the constructor; none where the file does not give them."""
        function = getattr(self.module, "get_init_inputs", None)
        if function is None:
            return []
        return self._listed("get_init_inputs", _call(self.path, "get_init_inputs", function))

    def make(self, seed: int = 0) -> torch.nn.Module:
        """A new model, its parameters drawn under `seed`."""
        arguments = self.init_inputs()
        torch.manual_seed(seed)
        made = _call(self.path, f"{self.class_name}(...)", self.model_class, *arguments)
        assert isinstance(made, torch.nn.Module)
        return made

    def inputs(self, seed: int = 0) -> list[Any]:
        """The arguments of forward, drawn under `seed`."""
        torch.manual_seed(seed)
        values = _call(self.path, "get_inputs()", self.module.get_inputs)
        return self._listed("get_inputs", values)

    def _listed(self, name: str, values: Any) -> list[Any]:
        if not isinstance(values, (list, tuple)):
            raise ContractError(
                f"{self.path}: {name}() must return a list, it returned a {type(values).__name__}"
            )
        return list(values)


def load(
    path: str | Path,
    sets: Mapping[str, str] | Iterable[str] = (),
    class_name: str = "Model",
) -> Reference:
    """Run the file at `path` with the given overrides (`NAME=VALUE`, or a mapping of texts)."""
    where = Path(path)
    try:
        text = where.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"{where}: cannot be read ({_reason(error)})") from error
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ContractError(f"{where}: line {error.lineno}: {error.msg}") from error
    constants = _constants(tree)
    text = _override(where, text, constants, _pairs(where, sets))
    module = run_source(text, where)
    if not hasattr(module, class_name):
        raise ContractError(
            f"{where}: expected a class {class_name}, the file has none; define one"
        )
    cls = getattr(module, class_name)
    if not (isinstance(cls, type) and issubclass(cls, torch.nn.Module)):
        raise ContractError(f"{where}: {class_name} must be a subclass of torch.nn.Module")
    if class_name == "Model" and not callable(getattr(module, "get_inputs", None)):
        raise ContractError(
            f"{where}: expected a function get_inputs(), the file has none; add one"
        )
    present = {n: getattr(module, n) for n in constants if hasattr(module, n)}
    return Reference(where, text, module, class_name, present)


def run_source(text: str, where: Path, names: Mapping[str, Any] | None = None) -> types.ModuleType:
    """Execute a file's text as a module of its own, so that inspect can show its source.

    names: what the text finds already defined.
    """
    name = f"refold_file_{abs(hash((str(where.resolve()), text))):x}"
    filename = f"<{where.name}:{name[-8:]}>"
    module = types.ModuleType(name)
    module.__file__ = str(where)
    module.__dict__.update(names or {})
    module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    sys.modules[name] = module
    folder = str(where.resolve().parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(text, filename, "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        kind = "importing" if isinstance(error, ImportError) else "running"
        raise ContractError(f"{where}: {kind} the file failed: {_reason(error)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _call(path: Path, what: str, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ContractError(f"{path}: {what} raised {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# --- overrides ------------------------------------------------------------------------------------
def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Names assigned once, at the top level, to a literal."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        target: ast.expr | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        if isinstance(target, ast.Name) and _literal(value) is not None:
            found[target.id] = value
    return found


def _literal(node: ast.expr) -> Constant | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        # products of numbers such as 2 * 1024 are constants too
        if not all(isinstance(n, (ast.BinOp, ast.Constant, ast.operator)) for n in ast.walk(node)):
            return None
        value = eval(compile(ast.Expression(node), "<constant>", "eval"), {"__builtins__": {}})
    return value if isinstance(value, (bool, int, float, str, tuple, list)) else None


def _pairs(where: Path, sets: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    if isinstance(sets, Mapping):
        return dict(sets)
    pairs = {}
    for item in sets:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ContractError(f"--set takes NAME=VALUE, got {item!r}")
        pairs[name.strip()] = value.strip()
    return pairs


def _override(
    where: Path, text: str, constants: Mapping[str, ast.expr], sets: Mapping[str, str]
) -> str:
    edits = []
    for name, given in sets.items():
        if name not in constants:
            known = ", ".join(constants) or "none"
            raise ContractError(f"{where}: --set {name}: no such constant; the file has: {known}")
        node = constants[name]
        old = _literal(node)
        edits.append((node, repr(_converted(where, name, given, old))))
    lines = text.splitlines(keepends=True)
    for node, new in sorted(edits, key=lambda e: (e[0].lineno, e[0].col_offset), reverse=True):
        assert node.end_lineno is not None and node.end_col_offset is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        head = lines[first].encode()[: node.col_offset].decode()
        tail = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [head + new + tail]
    return "".join(lines)


def _converted(where: Path, name: str, given: str, old: Constant | None) -> Constant:
    value: Constant | None
    try:
        value = given if isinstance(old, str) else ast.literal_eval(given)
    except (ValueError, SyntaxError):
        value = None
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if isinstance(value, (bool, int, float, str, tuple, list)) and type(value) is type(old):
        return value
    raise ContractError(
        f"{where}: --set {name}: expected a value of type {type(old).__name__} like {old!r},"
        f" got {given!r}"
    )
