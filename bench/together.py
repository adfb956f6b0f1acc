"""What each process of bench/several_gpus.py does: it trains its share of a model, or calls a fast
module on all devices.

Rank 0 prints a line of JSON for each part that is done.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import emitted_devices
import torch
import torch.distributed as dist
from alone import AGAIN, Alone, Asked, Sizes, batch, build, optimizer_of
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from training import Gpt

from refold.backend import Report, graphs, refold
from refold.backend.report import collected

SAME = 4.0  # times what another order of summation changes


# --- several devices ------------------------------------------------------------------------------
def ddp(model: nn.Module, where: str, backend: Any) -> Any:
    """DistributedDataParallel around the compiled module, or inside what is compiled."""
    place = next(model.parameters()).device
    ids = [place.index] if place.type == "cuda" else None
    if where == "around":
        return DistributedDataParallel(torch.compile(model, backend=backend), device_ids=ids)
    return torch.compile(DistributedDataParallel(model, device_ids=ids), backend=backend)


def fsdp(model: nn.Module, where: str, backend: Any) -> Any:
    """fully_shard of each block and of the whole: around compiled blocks and a compiled loss, or
    inside what is compiled. A model without blocks is one of them."""
    place = next(model.parameters()).device
    mesh = dist.device_mesh.init_device_mesh(place.type, (dist.get_world_size(),))
    blocks = [*model.blocks] if isinstance(model, Gpt) else []
    if where == "around":
        for block in blocks or [model]:
            block.compile(backend=backend)
        if isinstance(model, Gpt):
            model.loss = torch.compile(model.loss, backend=backend)  # type: ignore[method-assign]
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model if where == "around" else torch.compile(model, backend=backend)


KINDS: dict[str, Callable[[nn.Module, str, Any], Any]] = {"ddp": ddp, "fsdp": fsdp}


def whole(value: Any) -> Any:
    """A tensor, all of it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def mean(value: torch.Tensor) -> torch.Tensor:
    total = value.detach().double()
    dist.all_reduce(total)
    return total / dist.get_world_size()


class Together:
    """A model on all devices, by one compiler."""

    def __init__(self, name: str, sizes: Sizes, asked: Asked, wrap: Any, backend: Any) -> None:
        self.name, self.sizes, self.asked = name, sizes, asked
        self.held = memory(asked, reset=True)
        self.model = build(name, sizes, asked.place)
        self.run = wrap(self.model, backend)
        self.optimizer = optimizer_of(self.model)

    def backward(self, step: int) -> torch.Tensor:
        x = batch(self.name, self.sizes, self.asked.place, step, self.asked.rank)
        loss: torch.Tensor = self.run(x)
        torch.autograd.backward(loss)
        return loss.detach()

    def step(self, number: int = 0) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.backward(number)
        self.optimizer.step()
        return loss

    def gradients(self, step: int) -> list[Any]:
        self.optimizer.zero_grad()
        self.backward(step)
        found = [whole(p.grad) for p in self.model.parameters()]
        self.optimizer.zero_grad()
        return found

    def train(self) -> list[float]:
        losses = [self.step(i) for i in range(self.asked.steps)]
        return [float(v) for v in mean(torch.stack(losses))]

    def peak(self) -> float:
        """Bytes at the peak of a step."""
        memory(self.asked, reset=True)
        self.step()
        return memory(self.asked) - self.held

    def clock(self, steps: int) -> float:
        """Seconds of a step on the slowest device."""
        wait(self.asked)
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        finish(self.asked)
        taken = torch.tensor((time.perf_counter() - start) / steps, device=self.asked.place)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return float(taken)


def memory(asked: Asked, reset: bool = False) -> float:
    """The most bytes that were taken since the last reset; with a reset, those that are."""
    if asked.device != "cuda":
        return 0.0
    if reset:
        gc.collect()  # what stood before in a cycle would seem to be held, and then be let go of
        torch.cuda.reset_peak_memory_stats(asked.place)
        return float(torch.cuda.memory_allocated(asked.place))
    return float(torch.cuda.max_memory_allocated(asked.place))


def finish(asked: Asked) -> None:
    if asked.device == "cuda":
        torch.cuda.synchronize(asked.place)


def wait(asked: Asked) -> None:
    """Until all ranks are here, and nothing runs."""
    dist.all_reduce(torch.zeros(1, device=asked.place))
    finish(asked)


@functools.cache
def one_device(name: str, sizes: tuple[tuple[str, int], ...], asked: Asked) -> list[list[float]]:
    """Losses of one device, and those that it has where sums have another order; two ranks share
    the work."""
    alone = Alone(name, dict(sizes), asked)
    owners = {False: 0, True: asked.world - 1}
    mine = {turned: alone.losses(turned) for turned, owner in owners.items() if owner == asked.rank}
    found = []
    for turned, owner in owners.items():
        shared: list[Any] = [mine.get(turned)]
        dist.broadcast_object_list(shared, src=owner, device=asked.place)
        found += shared
    return found


def part(told: str, sizes: Sizes, asked: Asked) -> dict[str, Any]:
    """One row. told: a model, how it is spread, and what is compiled."""
    name, kind, where = told.split("_")
    torch._dynamo.reset()
    eager, turned = one_device(name, tuple(sizes.items()), asked)

    def wrap(model: nn.Module, backend: Any) -> Any:
        return KINDS[kind](model, where, backend)

    ours = functools.partial(refold, options={"measure": not asked.every})
    alone = Alone(name, sizes, asked)
    # Inductor's side first: what it compiled is found in its cache by ours, which times it
    theirs = Together(name, sizes, asked, wrap, "inductor")
    row: dict[str, Any] = {}
    start = time.perf_counter()
    theirs.step()
    row["first_compile_s"] = time.perf_counter() - start
    row["peak_compile_gb"] = theirs.peak() / 1e9
    mine = Together(name, sizes, asked, wrap, ours)
    start = time.perf_counter()
    with collected() as found:
        gradients = mine.gradients(0)
    row["first_refold_s"] = time.perf_counter() - start
    report = Report(tuple(found))
    row |= {k: round(report.share(k), 2) for k in ("forward", "backward")}
    row["graphs"] = f"{sum(g.by == 'refold' for g in found)} of {len(found)}"
    row["theirs"] = "; ".join(sorted({g.reason for g in found if g.by != "refold"}))
    if asked.rank == 0:
        row["error"] = alone.errors(build(name, sizes, asked.place), 0, gradients)
    del gradients
    losses = mine.train()
    row |= compared(losses, eager, turned)
    row |= read_on_one(mine, alone, eager)
    row["peak_gb"] = mine.peak() / 1e9
    row |= timed(mine, theirs, asked)
    return row


def compared(losses: Sequence[float], eager: Sequence[float], turned: Sequence[float]) -> Any:
    """How far losses are from one device's, beside what another order of summation does there."""
    pairs = [(abs(a - b), abs(c - b)) for a, b, c in zip(losses, eager, turned, strict=False)]
    apart, own = (max(p[i] for p in pairs) for i in (0, 1))
    bar = SAME * own + 1e-6 * max(map(abs, eager))
    return {
        "losses": "the same" if apart <= bar else "others",
        "loss_gap": apart,
        "order_gap": own,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }


def read_on_one(side: Together, alone: Alone, eager: Sequence[float]) -> dict[str, Any]:
    """A checkpoint of all devices, read by one, which goes on with it; and the error of gradients
    where training has come to."""
    asked = side.asked
    folder = [tempfile.mkdtemp() if asked.rank == 0 else None]
    dist.broadcast_object_list(folder, device=asked.place)
    path = Path(str(folder[0]))
    model, optim = get_state_dict(side.model, side.optimizer)
    save({"model": model, "optim": optim}, checkpoint_id=path)
    parameters = [whole(p).detach() for p in side.model.parameters()]
    gradients = side.gradients(asked.steps)
    row: dict[str, Any] = {}
    if asked.rank == 0:
        one = build(side.name, side.sizes, asked.place)
        optimizer = optimizer_of(one)
        state: dict[str, Any] = {}
        state["model"], state["optim"] = get_state_dict(one, optimizer)
        load(state, checkpoint_id=path, no_dist=True)
        set_state_dict(
            one, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        equal = all(map(torch.equal, one.parameters(), parameters))
        row["checkpoint"] = "the same" if equal else "others"
        row["error_end"] = alone.errors(one, asked.steps, gradients)
        steps = range(asked.steps, asked.steps + AGAIN)
        went = alone.train(one, optimizer, steps)
        row["gap_behind"] = max(abs(a - b) for a, b in zip(went, eager[asked.steps :], strict=True))
    wait(asked)
    return row


def timed(mine: Together, theirs: Together, asked: Asked) -> dict[str, Any]:
    """Both in turns."""
    steps = 20 if asked.device == "cuda" else 1
    sides = [theirs, mine]
    for side in sides:
        side.clock(1)
    rounds = []
    for i in range(asked.rounds):
        taken = {s: s.clock(steps) for s in (sides if i % 2 == 0 else sides[::-1])}
        rounds.append((taken[theirs], taken[mine]))
    low, middle, high = statistics.quantiles([a / b for a, b in rounds], n=4)
    milliseconds = (1e3 * statistics.median(r[i] for r in rounds) for i in (0, 1))
    row = {"compile": middle, "low": low, "high": high}
    return row | dict(zip(("compile_ms", "refold_ms"), milliseconds, strict=True))


# --- processes ------------------------------------------------------------------------------------
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--meet", required=True, help="a file by which processes find each other")
    parser.add_argument("parts", nargs="+", help="name:size=value,...")
    given = vars(parser.parse_args())
    meet, parts = given.pop("meet"), given.pop("parts")
    asked = Asked(**given)
    settings: dict[str, Any] = {}
    if asked.device == "cuda":
        torch.cuda.set_device(asked.place)
        settings["device_id"] = asked.place
    stores: Any = dist  # its module does not say that it has them
    store = stores.FileStore(meet, asked.world)
    dist.init_process_group(
        "nccl" if asked.device == "cuda" else "gloo",
        store=store,
        rank=asked.rank,
        world_size=asked.world,
        **settings,
    )
    if asked.every:
        graphs.WORTH = 0.0
    for one in parts:
        name, _, numbers = one.partition(":")
        sizes = {k: int(v) for k, v in (pair.split("=") for pair in numbers.split(","))}
        row = None
        with contextlib.redirect_stdout(sys.stderr):
            if name == "emitted":
                if asked.rank == 0:
                    row = emitted_devices.row(places_of(asked), sizes)
                    store.set(name, "done")
                # without a kernel that would run beside rank 0's
                store.wait([name], datetime.timedelta(hours=1))
            else:
                row = part(name, sizes, asked)
        if asked.rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    return 0


def places_of(asked: Asked) -> list[torch.device]:
    return [dataclasses.replace(asked, rank=r).place for r in range(asked.world)]


if __name__ == "__main__":
    sys.exit(main())
