"""One of two processes that train together on CPUs, by gloo: processes.py RANK FOLDER CASE.

Each sees half of every batch. What they end with has to be what one eager process makes of whole
batches. test_distributed.py runs them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from refold.backend import graphs, refold
from refold.backend.report import collected

ROWS, STEPS = 8, 3


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(torch.nn.functional.gelu(self.linear(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # no loop: a layer that fully_shard wraps breaks the graph, which Dynamo does in no loop
        x = self.layers[0](x)
        made: torch.Tensor = self.layers[1](x)
        return made


def compiled(model: Any) -> Any:
    return torch.compile(model, backend=functools.partial(refold, options={"measure": False}))


def ddp(model: Net, outside: bool) -> tuple[nn.Module, Any]:
    """DistributedDataParallel around the compiled module, or compiled itself, of many buckets."""
    settings: dict[str, Any] = {"bucket_cap_mb": 0.001}
    if outside:
        made = DistributedDataParallel(compiled(model), **settings)
        return made, made
    made = DistributedDataParallel(model, **settings)
    return made, compiled(made)


def sharded(model: Net, outside: bool) -> tuple[nn.Module, Any]:
    """fully_shard of each layer and of the whole, compiled layer by layer, or as a whole."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for layer in model.layers:
        if outside:
            layer.compile(backend=functools.partial(refold, options={"measure": False}))
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, model if outside else compiled(model)


CASES = {
    f"{kind.__name__}_{where}": functools.partial(kind, outside=where == "outside")
    for kind in (ddp, sharded)
    for where in ("outside", "inside")
}


def main(rank: int, folder: Path, case: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    graphs.WORTH = 0.0  # every graph that can be read is ours
    dist._DEFAULT_FIRST_BUCKET_BYTES = 512  # so that Dynamo splits the graph at buckets
    torch.manual_seed(0)
    model = Net()
    alone = copy.deepcopy(model)
    holder, run = CASES[case](model)
    heard: list[int] = []
    parameters = list(model.parameters())
    if case.startswith("ddp"):
        parameters[0].register_hook(lambda g: heard.append(1))
    sides = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, alone)]
    with collected() as found:
        for step in range(STEPS):
            batches = torch.randn(2, 2 * ROWS, 16)  # two of them are accumulated
            for k, whole in enumerate(batches):
                quiet = contextlib.nullcontext()
                if k == 0 and case.startswith("ddp"):
                    quiet = holder.no_sync()
                elif case.startswith("sharded"):
                    holder.set_requires_gradient_sync(k == 1)
                with quiet:
                    run(whole[rank * ROWS :][:ROWS]).square().mean().backward()
                alone(whole).square().mean().backward()
            for optimizer in sides:
                torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
                optimizer.step()
                optimizer.zero_grad()
            del step
    assert {g.by for g in found} == {"refold"}, [str(g) for g in found]
    assert {g.kind for g in found} == {"forward", "backward"}
    assert len(heard) == 2 * STEPS * case.startswith("ddp")
    same(model, alone)
    # a checkpoint, read by a module that nobody compiled
    kept = get_model_state_dict(model)
    assert sorted(n.replace("module.", "") for n in kept) == sorted(alone.state_dict())
    checkpoint.save({"model": kept}, checkpoint_id=str(folder / "checkpoint"))
    other = Net()
    state = {"model": get_model_state_dict(other)}
    checkpoint.load(state, checkpoint_id=str(folder / "checkpoint"))
    set_model_state_dict(other, state["model"])
    same(other, alone)
    dist.destroy_process_group()
    print("the same")


def same(model: nn.Module, other: nn.Module) -> None:
    """Sums of two halves are rounded otherwise than those of a whole, and Adam divides by them."""
    for (name, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        whole = a.full_tensor() if isinstance(a, DTensor) else a
        torch.testing.assert_close(
            whole, b, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
