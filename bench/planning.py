"""Seconds of the stages before compilation, for growing graphs: python bench/planning.py [NAME ...]

A row gives the captured ops, the processor's seconds of capture, engine, plans and emission, and
the milliseconds that the last three take for an op: they should stay where they are as graphs grow,
and take at most 1 s together at 400 ops and 10 s at 2,000. Plans are made of all the graphs that
the engine ends with. NAME picks rows (chain, shared, wide, sums, blocks), or names a network:
densenet121, resnet50, gpt2, llama, efficientnet, mobileone, repvgg (each needs the library that
defines it).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from refold import derive, pipeline
from refold.derive import Options
from refold.planner import price


class Steps(nn.Module):
    """`step` applied `count` times, then a sum over the last two axes."""

    def __init__(self, count: int, step: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.count, self.step = count, step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = self.step(x)
        return x.sum((1, 2))


class Wide(nn.Module):
    """Many products of one input, each with an activation, added up."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(32, 32) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tanh(m(x)) for m in self.maps]).sum(0)


class Sums(nn.Module):
    """Many products of two inputs in turn, added and subtracted one after the other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(32, 32) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given, total = (x, torch.tanh(x)), x
        for i, m in enumerate(self.maps):
            total = total + m(given[i % 2]) if i % 3 else total - 2 * m(given[i % 2])
        return total


class Blocks(nn.Module):
    """Residual blocks: normalise, widen, activate, narrow, add."""

    def __init__(self, count: int) -> None:
        super().__init__()
        made = (
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
            for _ in range(count)
        )
        self.blocks = nn.ModuleList(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def small_network(name: str) -> tuple[nn.Module, list[Any]]:
    """A network of a library at a small input."""
    image = [torch.randn(2, 3, 64, 64)]
    if name in ("densenet121", "resnet50"):
        import torchvision

        return getattr(torchvision.models, name)(), image
    if name in IN_TIMM:
        import timm

        return timm.create_model(IN_TIMM[name]), image
    import transformers

    ids = torch.randint(0, 100, (2, 16))
    sizes = {"vocab_size": 100, "use_cache": False}
    if name == "gpt2":
        config = transformers.GPT2Config(n_embd=64, n_layer=12, n_head=4, n_positions=32, **sizes)
        return First(transformers.GPT2LMHeadModel(config)), [ids]
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        **sizes,
    )
    return First(transformers.LlamaForCausalLM(config)), [ids]


class First(nn.Module):
    """The first result of a language model, a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids)[0]  # type: ignore[no-any-return]


IN_TIMM = {"efficientnet": "efficientnet_b0", "mobileone": "mobileone_s0", "repvgg": "repvgg_a0"}
NETWORKS = ("densenet121", "resnet50", "gpt2", "llama", *IN_TIMM)


def rows(names: list[str]) -> Iterator[tuple[str, nn.Module, list[Any]]]:
    """(title, module, example inputs) of each row asked for."""
    cube, row = [torch.randn(2, 3, 4)], [torch.randn(4, 32)]
    # about 100, 400 and 2,000 ops of each kind
    kinds: dict[str, tuple[Callable[[int], nn.Module], list[Any], tuple[int, int, int]]] = {
        "chain": (lambda n: Steps(n, lambda x: torch.tanh(x) + 1), cube, (50, 200, 1000)),
        "shared": (lambda n: Steps(n, lambda x: x * torch.tanh(x)), cube, (50, 200, 1000)),
        "wide": (Wide, row, (16, 66, 333)),
        "sums": (Sums, row, (20, 80, 400)),
        "blocks": (Blocks, row, (5, 20, 100)),
    }
    for name, (make, inputs, counts) in kinds.items():
        for count in counts if name in names else ():
            # of some parameters a graph misses the bar of accuracy and is searched eight times
            torch.manual_seed(0)
            yield f"{name} {count}", make(count), inputs
    for name in NETWORKS:
        if name in names:
            torch.manual_seed(0)
            yield name, *small_network(name)


class Watch:
    """Adds up the seconds and counts the ops of the pipeline's stages."""

    def __init__(self) -> None:
        where = {"capture": derive, "optimize": derive, "make_plan": price, "emit": pipeline}
        self.seconds = dict.fromkeys(where, 0.0)
        self.ops = 0
        for stage, module in where.items():
            setattr(module, stage, self._timed(stage, getattr(module, stage)))

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if stage == "optimize":
                self.ops += len(args[0].nodes())
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[stage] += time.process_time() - start

        return run

    def take(self) -> tuple[int, dict[str, float]]:
        """The ops and seconds since the last call."""
        taken = self.ops, dict(self.seconds)
        taken[1]["optimize"] -= taken[1]["make_plan"]  # which it asks for, of its last graphs
        self.ops, self.seconds = 0, dict.fromkeys(self.seconds, 0.0)
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or ["chain", "shared", "wide", "sums", "blocks"]
    target, device = pipeline.target_for("cpu")
    watch = Watch()
    head = ("capture s", "engine s", "plan s", "emit s", "ms an op")
    print(f"{'graph':<14}{'ops':>6}{''.join(f'{h:>11}' for h in head)}")
    for title, module, inputs in rows(names):
        options = Options(measure=False)
        result = pipeline.run(module, inputs, "", title, target, device, options)
        ops, took = watch.take()
        times = list(took.values())
        times.append(sum(times[1:]) / ops * 1e3)
        kept = "" if result.text else f"  kept: {result.reasons}"
        print(f"{title:<14}{ops:>6}{''.join(f'{t:>11.2f}' for t in times)}{kept}", flush=True)


if __name__ == "__main__":
    main()
