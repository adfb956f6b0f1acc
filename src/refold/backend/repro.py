"""A script for each graph that our part failed on, which shows the failure by itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from refold.backend.graphs import size_of, sizes_of
from refold.backend.options import BackendOptions

FOLDER = "REFOLD_REPRO"  # names the folder that scripts are written to


def leave(
    module: torch.fx.GraphModule, metas: Sequence[Any], options: BackendOptions, error: Exception
) -> Path | None:
    """Write a script where the environment asks for it; its path. Its sizes are the example's."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    text = script(module, metas, options, error)
    path = Path(folder, f"refold_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def script(
    module: torch.fx.GraphModule, metas: Sequence[Any], options: BackendOptions, error: Exception
) -> str:
    """The text: the graph as a function, its arguments, and our part of its compilation."""
    code = module.graph.python_code("self").src.strip()
    held = sorted({str(n.target) for n in module.graph.nodes if n.op == "get_attr"})
    tensors = [f"graph.{name} = {_tensor(getattr(module, name))}" for name in held]
    arguments = "\n".join(f"    {_text(m)}," for m in metas)
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return _SCRIPT.format(
        error=f"{type(error).__name__}: {first}",
        code="\n".join(f"    {line}" if line else "" for line in code.splitlines()),
        held="\n".join(tensors),
        arguments=arguments,
        options=repr(options),
    )


def _text(meta: Any) -> str:
    if not isinstance(meta, torch.Tensor):
        return repr(size_of(meta) if isinstance(meta, torch.SymInt) else meta)
    return _tensor(meta)


def _tensor(meta: torch.Tensor) -> str:
    shape, strides = tuple(sizes_of(meta.shape)), tuple(sizes_of(meta.stride()))
    return f'made({shape}, {strides}, {meta.dtype}, "{meta.device}")'


_SCRIPT = '''\
"""A graph that refold left to Inductor: {error}"""

import torch
from torch import device, inf, nan

from refold.backend.options import BackendOptions
from refold.backend.repro import run


class Graph(torch.nn.Module):
{code}


def made(shape, strides, dtype, device):
    tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return tensor.uniform_(0.5, 1.5) if tensor.is_floating_point() else tensor.zero_()


graph = Graph()
{held}
arguments = [
{arguments}
]
run(graph, arguments, {options})
'''


def run(graph: torch.nn.Module, arguments: Sequence[Any], options: BackendOptions) -> None:
    """What a script does: our part of the compilation, a call of what it gives beside PyTorch's
    own, and its error; an exception is raised as it comes."""
    from torch._subclasses import FakeTensorMode

    from refold.backend.accurate import measured
    from refold.backend.graphs import derive, held_by
    from refold.backend.loaded import load

    module = torch.fx.symbolic_trace(graph)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        _WithValues(module).run(*fakes)
    call = load(derive(module.graph, options).text(), held_by(module))
    wanted = module(*[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments])
    found = call(list(arguments))
    for got, want in zip(found, wanted, strict=True):
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    print("our part compiles this graph, and computes the same")
    print(f"it has {measured(module, call)}")


class _WithValues(torch.fx.Interpreter):
    """Notes what each node gives."""

    def run_node(self, n: torch.fx.Node) -> Any:
        found = super().run_node(n)
        n.meta["val"] = found
        return found
