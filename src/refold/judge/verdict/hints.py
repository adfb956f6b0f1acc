"""What a candidate's text does that a reader may want to look at. Hints never condemn: files are
read, threads are started and clocks are looked at for good reasons, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_MOST = 20  # hints
_LINES = 3  # of a hint

# by the last part of what is called
_CALLS = {
    "open": "reads or writes a file",
    "read_text": "reads a file",
    "read_bytes": "reads a file",
    "write_text": "writes a file",
    "write_bytes": "writes a file",
    "data_ptr": "looks at the address of a tensor",
    "id": "looks at the address of an object",
    "Stream": "has a stream of its own",
    "half": "computes in a narrower type",
    "bfloat16": "computes in a narrower type",
    "setattr": "sets an attribute by name",
    "exec": "runs code that it makes",
    "eval": "runs code that it makes",
    "get_objects": "searches live objects",
    "get_referrers": "searches live objects",
    "_getframe": "looks at the frames of its callers",
    "currentframe": "looks at the frames of its callers",
    "fork": "starts a process",
    "system": "starts a process",
    "popen": "starts a process",
}
# by the whole of what is called
_PATHS = {
    "torch.load": "reads a file",
    "torch.save": "writes a file",
    "numpy.load": "reads a file",
    "np.load": "reads a file",
    "time.sleep": "waits",
}
# by what is read
_NAMES = {
    "_version": "looks at the count of writes to a tensor",
    "allow_tf32": "sets or reads a global switch of precision",
    "environ": "reads the environment",
    "float16": "names a narrower type",
}
_MODULES = {
    "threading": "uses threads",
    "concurrent": "uses threads or processes",
    "multiprocessing": "uses processes",
    "subprocess": "starts a process",
    "socket": "uses the network",
    "urllib": "uses the network",
    "requests": "uses the network",
    "http": "uses the network",
    "ctypes": "calls machine code through ctypes",
    "gc": "uses the garbage collector",
    "inspect": "looks at code or frames",
    "time": "looks at the clock",
    "signal": "handles signals",
    "pickle": "reads or writes pickles",
    "mmap": "maps files or memory",
}
_EVERYTHING = ("Exception", "BaseException")


def of(path: Path) -> tuple[str, ...]:
    """Hints of a file, each once with its first lines, in their order; at most twenty."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    found = sorted({one for node in ast.walk(tree) for one in _seen(node)})
    lines: dict[str, list[int]] = {}
    for line, text in found:
        lines.setdefault(text, []).append(line)
    told = [f"{_where(at)}: {text}" for text, at in lines.items()]
    more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
    return tuple(told[:_MOST] + more)


def _where(lines: list[int]) -> str:
    """The first lines, and how many there are beside them."""
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = f" and {len(lines) - _LINES} more" if len(lines) > _LINES else ""
    return f"lines {', '.join(map(str, lines[:_LINES]))}{more}"


def _seen(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        text = _PATHS.get(name) or _CALLS.get(name.rpartition(".")[2])
        if text:
            yield node.lineno, text
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield node.lineno, _NAMES[node.attr]
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] in _MODULES:
                yield node.lineno, _MODULES[alias.name.split(".")[0]]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        text = _MODULES.get((node.module or "").split(".")[0])
        if text:
            yield node.lineno, text
    elif isinstance(node, ast.ExceptHandler):
        names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(n is None or _dotted(n) in _EVERYTHING for n in names):
            yield node.lineno, "catches every exception"
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and _dotted(target).split(".")[0] == "torch":
                yield node.lineno, f"sets {_dotted(target)}"


def _dotted(node: ast.AST | None) -> str:
    """``a.b.c`` of names; of anything else its last part."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))
