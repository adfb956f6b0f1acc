"""Random models as text: a class over random lines of PyTorch, in any order, with its inputs.

A line is kept if eager PyTorch runs it on what the lines before it gave and its value stays tame.
So the text of a failing model is its own reproducer, and fewer choices give a smaller model.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]

BATCH = 6
LARGEST = 6000
ACTIVATIONS = (
    "torch.relu({v})",
    "torch.tanh({v})",
    "torch.sigmoid({v})",
    "F.gelu({v})",
    "F.gelu({v}, approximate='tanh')",
    "F.silu({v})",
    "F.mish({v})",
    "F.hardtanh({v}, -0.5, 0.75)",
    "F.hardswish({v})",
    "F.hardsigmoid({v})",
    "F.leaky_relu({v}, 0.1)",
    "F.leaky_relu({v}, -0.3)",
    "F.elu({v}, 0.7)",
    "F.selu({v})",
    "F.celu({v}, 1.3)",
    "F.softplus({v})",
    "F.softplus({v}, 2.0, 1.0)",
    "F.softsign({v})",
    "F.logsigmoid({v})",
    "F.relu6({v} * 3)",
    "F.threshold({v}, 0.1, -1.0)",
    "torch.clamp({v}, -0.3, 0.6)",
    "torch.clamp({v}, min=0.1)",
    "{v}.clamp(max=0.2)",
    "{v} * torch.sigmoid(1.7 * {v})",
    "{v}.abs()",
    "{v}.abs().sqrt()",
    "{v}.square()",
    "torch.exp(-{v}.abs())",
    "torch.log({v}.abs() + 0.1)",
    "torch.rsqrt({v}.square() + 0.5)",
    "torch.sin({v}) + torch.cos({v})",
    "torch.erf({v})",
    "-{v}",
    "1.0 - {v}",
    "2 * {v} - 1",
    "{v} / 3.0",
    "1.0 / ({v}.abs() + 0.5)",
    "{v} ** 2",
    "{v} ** 3",
    "({v}.abs() + 0.1) ** 1.5",
    "{v} + {v}",
    "{v} - {v}",
    "{v} * {v}",
    "torch.sign({v}) * 2",
    "{v}.expm1()",
    "F.normalize({v}, dim=-1)",
    "F.glu({v}, dim=-1)",
    "torch.nan_to_num({v})",
    "{v}.double().to({v}.dtype)",
    "{v}.detach()",
    "{v}.clone().mul_(2).add_(1)",
    "F.dropout({v}, 0.4, False)",
    "{v} + torch.arange({n}, dtype={v}.dtype) * 0.1",
    "{v} * torch.exp(torch.arange({n}) * -0.1)",
    "{v}.masked_fill(torch.ones({n}, {n}, dtype=torch.bool).triu(1)[-1], 0.5)",
    "{v}.masked_fill(torch.arange({v}.shape[-1]) % 2 == 0, -0.5)",
    "F.layer_norm({v}, ({n},))",
    "F.pad({v}, (1, 1), mode='replicate')",
    "F.interpolate({v}, scale_factor=2, mode='linear')",
)
NO_DIM = (
    "{v}.sum()",
    "{v}.mean()",
    "{v}.max()",
    "{v}.min()",
    "{v}.std()",
    "{v}.norm()",
    "{v} / {v}.norm(p='fro')",
    "{v} - {v}.mean()",
)
OVER_DIM = (
    "{v}.sum({d})",
    "{v}.sum({d}, keepdim=True)",
    "{v}.mean({d})",
    "{v}.mean(dim={d}, keepdim=True)",
    "{v}.max(dim={d}).values",
    "torch.max({v}, dim={d}, keepdim=True)[0]",
    "torch.min({v}, {d})[0]",
    "torch.max({v}, {d})[0] + torch.max({v}, {d})[1]",
    "{v}.amax({d}, keepdim=True)",
    "{v}.amin({d})",
    "torch.logsumexp({v}, {d})",
    "torch.logsumexp({v}, dim={d}, keepdim=True)",
    "{v}.var({d})",
    "{v}.var({d}, keepdim=True, unbiased=False)",
    "torch.std({v}, dim={d}, keepdim=True)",
    "torch.std({v}, {d}, correction=0)",
    "{v}.norm(dim={d})",
    "torch.norm({v}, p=1, dim={d}, keepdim=True)",
    "torch.linalg.vector_norm({v}, ord=float('inf'), dim={d})",
    "torch.prod({v}, {d})",
    "torch.cumsum({v}, {d})",
    "torch.softmax({v}, {d})",
    "F.log_softmax({v}, dim={d})",
    "torch.log(torch.softmax({v}, {d}))",
    "torch.log(torch.sum(torch.exp({v}), {d}, keepdim=True))",
    "{v} - {v}.mean({d}, keepdim=True)",
    "({v} - {v}.mean({d}, keepdim=True)) / ({v}.std({d}, keepdim=True) + 1e-3)",
    "{v} - {v}.amax({d}, keepdim=True)",
    "{v} / {v}.abs().sum({d}, keepdim=True)",
    "{v} / ({v}.norm(dim={d}, keepdim=True) + 1e-6)",
    "{v}.argmax({d}).to({v}.dtype)",
    "{v}.flip({d})",
    "{v}.unsqueeze({d})",
    "{v}.squeeze({d})",
    "torch.stack([{v}, {v} * 2], dim={d})",
    "torch.cat([{v}, {v}.tanh()], {d})",
    "{v}.narrow({d}, 0, 1)",
    "{v}.select({d}, 0)",
    "{v}.select({d}, -1)",
    "{v}.chunk(2, dim={d})[0]",
    "{v}.chunk(2, dim={d})[-1] * 3",
    "{v}.softmax({d}).sum({d})",
    "{v}.cumsum({d}).sum({d}, keepdim=True)",
)
OVER_DIMS = (
    "{v}.sum(({d}, {e}))",
    "{v}.mean(({d}, {e}), keepdim=True)",
    "{v}.amax(({d}, {e}))",
    "{v}.var(({d}, {e}))",
    "{v}.std(({d}, {e}), keepdim=True, correction=0)",
    "torch.logsumexp({v}, ({d}, {e}))",
    "{v}.transpose({d}, {e})",
    "{v}.transpose({d}, {e}).contiguous()",
    "{v}.mean({d}, keepdim=True).sum({e}, keepdim=True)",
)
TWO = (
    "{v} + {u}",
    "{v} - {u}",
    "{v} * {u}",
    "{v} / ({u}.abs() + 0.3)",
    "torch.maximum({v}, {u})",
    "torch.minimum({v}, {u})",
    "torch.where({v} > {u}, {v}, {u} * 0.5)",
    "torch.where(({v} > 0) & ({u} > 0.1), {v}, -{v})",
    "{v}.masked_fill({u} > 0.4, -1.5)",
    "({v} >= {u}).to({v}.dtype) + {v}",
    "torch.lerp({v}, {u}, 0.3)",
    "torch.addcmul({v}, {u}, {u}, value=0.5)",
    "{v} @ {u}",
    "{v} @ {u}.transpose(-1, -2)",
    "torch.softmax({v} @ {u}.transpose(-1, -2) / 2.0, -1)",
    "F.cosine_similarity({v}, {u}, dim=-1)",
    "F.mse_loss({v}, {u})",
    "F.smooth_l1_loss({v}, {u})",
    "F.kl_div(F.log_softmax({v}, -1), F.softmax({u}, -1), reduction='batchmean')",
    "torch.cat([{v}, {u}], dim=-1)",
    "torch.cat(({v}, {u}), 0)",
    "({v} + {u}) * ({v} - {u})",
)
# (constructor or parameter, expression); {k} is the attribute, {n} the last size, {c} the second
OWN = (
    ("nn.Linear({n}, {m})", "self.{k}({v})"),
    ("nn.Linear({n}, {m})", "self.{k}({v})"),
    ("nn.Linear({n}, {m}, bias=False)", "self.{k}({v})"),
    ("nn.Linear({n}, {n})", "{v} + self.{k}({v})"),
    ("nn.Linear({n}, {n})", "self.{k}(torch.relu(self.{k}({v})))"),
    ("nn.Linear({n}, 1)", "self.{k}({v})"),
    ("nn.Linear({n}, 1)", "self.{k}({v}).squeeze(-1)"),
    ("nn.Parameter(torch.randn({m}, {n}))", "F.linear({v}, self.{k})"),
    ("nn.Parameter(torch.randn({n}, {m}))", "{v} @ self.{k}"),
    ("nn.Parameter(torch.randn({n}, {m}))", "torch.matmul({v}, self.{k}) * 0.5"),
    ("nn.Parameter(torch.randn({n}))", "{v} @ self.{k}"),
    ("nn.Parameter(torch.randn({n}, {m}))", "torch.einsum('bi,io->bo', {v}, self.{k})"),
    ("nn.Parameter(torch.randn({n}, {m}))", "torch.einsum('bsi,io->bso', {v}, self.{k})"),
    ("nn.Parameter(torch.randn({n}, {n}))", "torch.addmm({v}, {v}, self.{k}, beta=0.5, alpha=2.0)"),
    ("nn.Parameter(torch.randn({c}, {m}))", "self.{k}.t() @ {v}"),
    ("nn.Parameter(torch.randn({c}, {n}, {m}))", "torch.einsum('bci,cio->bco', {v}, self.{k})"),
    (
        "nn.Parameter(torch.randn({m}, {n}))",
        "F.linear({v}, self.{k} / self.{k}.norm(dim=1, keepdim=True))",
    ),
    ("nn.Parameter(torch.randn({m}, {n}))", "F.linear({v}, torch.tanh(self.{k}) * 0.3)"),
    ("nn.Parameter(torch.randn({m}, {n}))", "F.linear(F.linear({v}, self.{k}), self.{k}.t())"),
    ("nn.Parameter(torch.randn({n}, {n}))", "{v} @ torch.triu(self.{k})"),
    ("nn.Parameter(torch.randn({n}))", "{v} @ torch.diag(self.{k})"),
    ("nn.Parameter(torch.randn({n}))", "{v} * self.{k}"),
    ("nn.Parameter(torch.randn({n}))", "{v} + self.{k}"),
    ("nn.Parameter(torch.rand({n}) + 0.5)", "{v} / self.{k}"),
    ("nn.Parameter(torch.rand({n}) + 0.5)", "({v} - self.{k}) * self.{k}"),
    ("nn.Parameter(torch.randn(()))", "{v} * self.{k}"),
    ("nn.Parameter(torch.randn({c}, 1))", "{v} * self.{k}"),
    ("nn.Parameter(torch.randn({c}, 1))", "self.{k} - {v}"),
    ("nn.Parameter(torch.randn(1, {n}))", "torch.maximum({v}, self.{k})"),
    ("nn.BatchNorm1d({c})", "self.{k}({v})"),
    ("nn.BatchNorm1d({c}, affine=False)", "self.{k}({v})"),
    ("nn.BatchNorm1d({c}, track_running_stats=False)", "self.{k}({v})"),
    ("nn.BatchNorm1d({c}, momentum=None)", "self.{k}({v})"),
    ("nn.BatchNorm1d({c}, eps=1e-2, momentum=0.3)", "torch.relu(self.{k}({v}))"),
    ("nn.InstanceNorm1d({c}, affine=True)", "self.{k}({v})"),
    ("nn.InstanceNorm1d({c}, track_running_stats=True)", "self.{k}({v})"),
    ("nn.LayerNorm({n})", "self.{k}({v})"),
    ("nn.LayerNorm({n}, elementwise_affine=False)", "self.{k}({v})"),
    ("nn.LayerNorm([{c}, {n}])", "self.{k}({v})"),
    ("nn.RMSNorm({n})", "self.{k}({v})"),
    (
        "nn.Parameter(torch.rand({n}))",
        "{v} * torch.rsqrt({v}.pow(2).mean(-1, keepdim=True) + 1e-6) * self.{k}",
    ),
    ("nn.GroupNorm(1, {c})", "self.{k}({v})"),
    ("nn.GroupNorm({c}, {c})", "self.{k}({v})"),
    ("nn.GroupNorm(2, {c})", "self.{k}({v})"),
    ("nn.Dropout(0.3)", "self.{k}({v})"),
    ("nn.PReLU()", "self.{k}({v})"),
    ("nn.PReLU({c})", "self.{k}({v})"),
    ("nn.Conv1d({c}, 4, 3, padding=1)", "self.{k}({v})"),
    ("nn.MultiheadAttention({n}, 1, batch_first=True)", "self.{k}({v}, {v}, {v})[0]"),
    ("nn.Parameter(torch.randn({n}))", "torch.where({v} > self.{k}, {v}, self.{k})"),
    ("nn.Linear({n}, {m})", "F.linear({v} * 2, self.{k}.weight, self.{k}.bias).sum(-1)"),
    ("nn.Linear({n}, {m})", "F.linear(torch.sigmoid(self.{k}({v})), self.{k}.weight.t())"),
    ("nn.Sequential(nn.Linear({n}, {m}), nn.Tanh(), nn.Linear({m}, {n}))", "self.{k}({v}) + {v}"),
    ("nn.Parameter(torch.randn({n}))", "{v}.masked_fill(self.{k} > 0, 0.25)"),
    ("nn.Parameter(torch.randn({n}).relu())", "torch.where(self.{k} == 0, {v}, -{v})"),
    ("torch.rand({n}) > 0.5", "{v}.masked_fill(self.{k}, -1.5)"),
    ("torch.rand({n}) > 0.5", "torch.where(self.{k} & ({v} > 0), {v}, 2 * {v})"),
    ("torch.arange({n})", "{v} * (self.{k} + 1)"),
    ("nn.Flatten()", "self.{k}({v})"),
    ("nn.Linear({n}, {m})", "torch.sin(self.{k}({v})) * torch.cos(self.{k}({v}))"),
    ("torch.linspace(-1, 1, {n})", "{v} * self.{k}"),
    ("0.625", "{v} * self.{k}"),
)
POOLS = (
    "F.avg_pool1d({v}, {p}, {q}, {r})",
    "F.avg_pool1d({v}, {p}, {q}, {r}, False, False)",
    "F.avg_pool1d({v}, {p}, {q}, {r}, True)",
    "F.max_pool1d({v}, {p}, {q}, {r})",
    "F.adaptive_avg_pool1d({v}, {q})",
    "F.adaptive_max_pool1d({v}, {q})",
    "F.avg_pool1d({v}.unsqueeze(1), {p}, {q}, {r}).squeeze(1)",
    "F.max_pool1d({v}.unsqueeze(1), {p}, {q}).squeeze(1)",
    "F.pad({v}, (1, {r}))",
)
SHAPES = (
    "{v}.flatten(1)",
    "{v}.reshape({v}.shape[0], -1)",
    "{v}.reshape(-1)",
    "{v}.view(-1, {n})",
    "{v}.t()",
    "{v}.permute(1, 0, 2)",
    "{v}.permute(0, 2, 1)",
    "{v}.permute(2, 0, 1)",
    "{v}.unsqueeze(1).expand(-1, 3, -1)",
    "{v}.unsqueeze(-1).expand(-1, -1, 2)",
    "{v}.expand_as({v})",
    "{v}.unflatten(-1, (2, -1))",
    "{v}[:, 1:]",
    "{v}[..., ::2]",
    "{v}[:, :-1]",
    "{v}[-1]",
    "{v}.repeat(1, 2)",
    "{v}.roll(1, -1)",
    "{v} / {v}.shape[0]",
    "{v} * {v}.size(-1)",
    "{v}.split([1, {n} - 1], -1)[1]",
    "torch.outer({v}.reshape(-1)[:7], {v}.reshape(-1)[:3])",
    "torch.tril({v})",
)
STATES = (
    ("torch.zeros(())", "self.{k} += 1"),
    ("torch.zeros(())", "self.{k}.copy_({v}.detach().mean())"),
    ("torch.zeros({n})", "self.{k}.mul_(0.9).add_({v}.detach().reshape(-1, {n}).mean(0) * 0.1)"),
)


class Model:
    """A model under construction: lines of text, and what they give on the example."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.init: list[str] = []
        self.lines: list[str] = []
        self.inputs: dict[str, str] = {}
        self.values: dict[str, torch.Tensor] = {}
        self.module = nn.Module()
        self.scope = {"torch": torch, "nn": nn, "F": nn.functional, "self": self.module}
        self.changed = False

    # --- inputs -----------------------------------------------------------------------------------
    def begin(self) -> None:
        c, n = self.choose((3, 4, 8)), self.choose((1, 5, 6, 12, 33))
        kinds = (
            ("torch.randn(n, {n})",),
            ("torch.randn(n, {c}, {n})",),
            ("torch.randn(n, {n})", "torch.randn(n, {n})"),
            ("torch.randn(n, {c}, {n})", "torch.randn({n})"),
            ("torch.randn(n, {n})", "torch.rand(n, 1)"),
            ("torch.randint(0, 9, (n, {c}))",),
            ("torch.randn(2, n, {n})", "torch.randn(2, n, {n})"),
            ("torch.randn(7, {n})",),
        )
        for name, text in zip("xyz", self.choose(kinds), strict=False):
            self.inputs[name] = text.format(c=c, n=n)
            torch.manual_seed(0)
            value = eval(self.inputs[name], {"torch": torch, "n": BATCH})
            self.values[name] = value
            self.scope[name] = value
        if "randint" in self.inputs["x"]:
            self.init.append("self.table = nn.Embedding(9, 6)")
            exec(self.init[-1], self.scope)
            self._keep("self.table(x)")
            del self.values["x"]

    # --- lines ------------------------------------------------------------------------------------
    def step(self) -> None:
        names = [k for k, v in self.values.items() if v.is_floating_point()]
        v = self.choose(names[::-1][:3])
        u = self.choose(names)
        x = self.values[v]
        sizes = {
            "v": v,
            "u": u,
            "n": x.shape[-1] if x.dim() else 1,
            "c": x.shape[1] if x.dim() > 1 else 1,
            "k": f"m{len(self.init)}",
        }
        kind = self.choose(("own", "own", "act", "dim", "dim", "dims", "two", "pool", "shape", "x"))
        if kind == "own":
            make, text = self.choose(OWN)
            sizes["m"] = self.choose((1, 4, 7, 16))
            self._own(make.format(**sizes), text.format(**sizes), sizes["k"])
        elif kind == "act":
            self._keep(self.choose(ACTIVATIONS).format(**sizes))
        elif kind == "dim":
            sizes["d"] = self.choose((-1, 1, 0, -2))
            self._keep(self.choose(OVER_DIM).format(**sizes))
        elif kind == "dims":
            sizes["d"], sizes["e"] = self.choose(((-2, -1), (0, -1), (0, 1), (0, 2)))
            self._keep(self.choose(OVER_DIMS).format(**sizes))
        elif kind == "two":
            self._keep(self.choose(TWO).format(**sizes))
        elif kind == "pool":
            sizes["p"], sizes["q"] = self.choose((2, 3, 5)), self.choose((1, 2, 3))
            sizes["r"] = self.choose((0, 1))
            self._keep(self.choose(POOLS).format(**sizes))
        elif kind == "shape":
            self._keep(self.choose(SHAPES).format(**sizes))
        else:
            self._keep(self.choose(NO_DIM).format(**sizes))

    def state(self) -> None:
        names = [k for k, v in self.values.items() if v.is_floating_point() and v.dim()]
        if not names or self.changed:
            return
        v = self.choose(names)
        make, text = self.choose(STATES)
        words = {"k": "state", "v": v, "n": self.values[v].shape[-1]}
        line = f"self.register_buffer('state', {make.format(**words)})"
        exec(line, self.scope)
        try:
            exec(text.format(**words), self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            del self.module._buffers["state"]
            return
        self.init.append(line)
        self.lines.append(text.format(**words))
        self.changed = True

    def _own(self, make: str, text: str, name: str) -> None:
        try:
            exec(f"self.{name} = {make}", self.scope)
        except (RuntimeError, ValueError, AssertionError):
            return
        self.init.append(f"self.{name} = {make}")
        if not self._keep(text):
            self.init.pop()
            delattr(self.module, name)

    def _keep(self, text: str) -> bool:
        try:
            with torch.no_grad():
                value = eval(text, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError, AssertionError):
            return False
        if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= LARGEST:
            return False
        if not value.isfinite().all() or value.abs().max() > 1e4 or value.dim() > 4:
            return False
        name = f"v{len(self.lines)}"
        self.values[name] = self.scope[name] = value
        self.lines.append(f"{name} = {text}")
        return True

    # --- text -------------------------------------------------------------------------------------
    def text(self) -> str:
        made = [k for k in self.values if k.startswith("v")] or list(self.values)
        count = self.choose((1, 1, 2, 3))
        chosen = made[-count:]
        results = [
            ", ".join(chosen),
            "{" + ", ".join(f"'{k}': {k}" for k in chosen) + "}",
            f"[{chosen[-1]}, ({', '.join(chosen)}, None)]",
            f"OrderedDict({', '.join(f'{k}={k}' for k in chosen)})",
            f"torch.aminmax({chosen[0]})",
        ]
        result = self.choose((results[0], results[0], *results))
        body = [*self.lines, f"return {result}"]
        init = ["super().__init__()", *self.init]
        arguments = ", ".join(["self", *self.inputs])
        return "\n".join(
            [
                "from collections import OrderedDict",
                "import torch",
                "import torch.nn as nn",
                "import torch.nn.functional as F",
                "",
                f"n = {BATCH}",
                "",
                "",
                "class Model(nn.Module):",
                "    def __init__(self):",
                textwrap.indent("\n".join(init), " " * 8),
                "",
                f"    def forward({arguments}):",
                textwrap.indent("\n".join(body), " " * 8),
                "",
                "",
                "def get_inputs():",
                f"    return [{', '.join(self.inputs.values())}]",
                "",
            ]
        )


def model_text(choose: Choose, longest: int = 9) -> str:
    """The text of a random model; `choose` takes one of a sequence, the simplest first."""
    torch.manual_seed(0)
    made = Model(choose)
    made.begin()
    for _ in range(choose(range(1, longest + 1))):
        made.step()
    if choose((False, False, False, True)):
        made.state()
    return made.text()


def load(text: str) -> tuple[nn.Module, Callable[[int], list[Any]]]:
    """The module of a model's text, and a function that draws inputs of a batch size."""
    scope: dict[str, Any] = {"__name__": "random_model"}
    exec(compile(text, "<random model>", "exec"), scope)
    torch.manual_seed(1)
    module = scope["Model"]()

    def inputs(count: int = BATCH) -> list[Any]:
        scope["n"] = count
        return scope["get_inputs"]()

    return module, inputs
