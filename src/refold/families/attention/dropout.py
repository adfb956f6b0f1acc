"""Kernels of attention with dropout, as text: PyTorch's numbers say which
(cuda/attention_draws.cuh).

The graph has no such values: in training a call of PyTorch draws them, and another draws them anew
for its gradient. Kernels take the place of these calls, one each.
"""

from __future__ import annotations

from dataclasses import dataclass

from refold.codegen.kernel import macro
from refold.ir.literals import cpp_literal

HEADERS = {False: "attention.cuh", True: "attention_gradient.cuh"}
MULTIPLE = 32  # what the number of sums is padded to, as PyTorch's call has it
_PANEL = 64  # features that a row of shared memory holds


@dataclass(frozen=True)
class Dropout:
    """What is compiled into a kernel. features: of a head. probability: to drop a weight. gradient:
    whether it computes gradients."""

    features: int
    scale: float
    causal: bool
    masked: bool
    probability: float
    gradient: bool

    def words(self) -> str:
        """What it computes, in words."""
        what = "gradients of attention" if self.gradient else "attention"
        kinds = ["of causal scores"] * self.causal + ["with a mask"] * self.masked
        return " ".join([what, *kinds, f"with a dropout of {self.probability:g}"])


def kernel_text(dropped: Dropout) -> str:
    """The functor, and the functions by which Python calls the kernel: `dropped`, and
    `dropped_workspace_size`."""
    name = "attention_gradient" if dropped.gradient else "attention"
    made = ("of_queries", "of_keys", "of_values") if dropped.gradient else ("destination", "sums")
    mask = ["float* mask"] if dropped.masked else []
    tokens = ("gradient", "q", "k", "v", "result") if dropped.gradient else ("q", "k", "v")
    sides = [f"Tokens {x}" for x in tokens] + ["float* sums"] * dropped.gradient + mask
    sizes = ["batches", "queries", "keys", "heads", "width", "mask_batch", "mask_head"]
    sizes += ["mask_query"] + ["places"] * dropped.gradient
    given = [x.split()[-1] for x in sides] + ["nullptr"] * (not dropped.masked)
    parameters = [*sides, f"Members<Dropout, {2 + len(made)}> body", *(f"long {s}" for s in sizes)]
    run = f"rf::{name}(body.sized(width), {', '.join([*given, *sizes])}, work, on)"
    asked = f"RF_WORKSPACE(dropped, {name}_workspace_size<Dropout>)\n"
    return "\n".join(
        [_functor(dropped, made), asked, macro("RF_KERNEL", "dropped", parameters, run)]
    )


def _functor(dropped: Dropout, made: tuple[str, ...]) -> str:
    base = "AttentionGradientBody" if dropped.gradient else "AttentionBody"
    facts = {
        "kCausal": ("bool", str(dropped.causal).lower()),
        "kMasked": ("bool", str(dropped.masked).lower()),
        "kDropped": ("bool", "true"),
        "kPanels": ("int", "2" if dropped.features > _PANEL else "1"),
        "kScale": ("float", cpp_literal(dropped.scale)),
        "kDropProbability": ("float", cpp_literal(dropped.probability)),
        "kKeptScale": ("float", "float(1.0 / (1.0 - kDropProbability))"),
    }
    if dropped.gradient:
        facts["kGradients"] = ("int", "kQueryGradient | kKeyGradient | kValueGradient")
    else:
        facts["kPlaces"] = ("long", str(MULTIPLE))
    lines = [f"struct Dropout : {base} {{", "  long seed, offset;"]
    lines += [f"  float* {', *'.join(f'to_{m}' for m in made)};", "  long width;"]
    lines += [f"  static constexpr {kind} {name} = {x};" for name, (kind, x) in facts.items()]
    lines.append("  Drawn drawn() const { return {seed, offset}; }")
    lines += [f"  float* {m}() const {{ return to_{m}; }}" for m in made]
    return "\n".join([*lines, "};", ""])
