"""The bar: errors of a rewritten graph beside eager's, as root mean squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from refold.accuracy.samples import NUDGED, Sample, Samples, Values, is_scaled
from refold.ir import Graph
from refold.ir.rounded import run_rounded

FACTOR = 1.5  # how many times eager's RMS error the rewritten graph may have
FACTOR_TF32 = 1.1  # where TF32 is allowed, whose own errors are large
APART = 16.0  # how many times eager's the error of the graph as captured may be: the judge's bar
ULPS = 2.0  # and how many units in the last place of the results' RMS beside
NOISE = 100.0  # how many times eager's where a scaled example leaves eager nothing but error
AGAIN = 3  # further draws near the example before a failure counts


@dataclass(frozen=True)
class Found:
    """The largest ratio of errors, and the name of its sample; the sample itself if it fails."""

    ratio: float
    where: str
    failed: Sample | None = None


def measure(samples: Samples, graph: Graph, bar: float) -> Found:
    """The errors of a rewritten graph on all samples, as far as the first one that fails."""
    folds: Values = {}

    def found_on(sample: Sample) -> list[Error]:
        made = run_rounded(graph.roots(), sample.leaves, sample.sizes, folds)
        return errors_of(sample, [made[r] for r in graph.roots()], sample.eager, sample.apart)

    best = Found(0.0, samples.names[0])
    for name in samples.names:
        sample = samples.get(name)
        if sample is None:
            continue
        errors, scaled = [found_on(sample)], is_scaled(name)
        if not meets(errors, bar, scaled):
            again = (samples.get(name, draw) for draw in range(1, AGAIN + 1))
            errors += [found_on(s) for s in again if s is not None]  # eager may have been lucky
            if not meets(errors, bar, scaled):
                return Found(ratio_of(errors, scaled), name, sample)
        if ratio_of(errors, scaled) > best.ratio:
            best = Found(ratio_of(errors, scaled), name)
    return best


def words(name: str) -> str:
    return name if name == "the example" else f"the example {name}"


@dataclass
class Error:
    """Sums of squares over one result: errors of both sides, values; and what cannot be summed."""

    eager: float
    rewritten: float
    values: float
    ulp: float
    lost: bool


def errors_of(
    sample: Sample,
    made: Sequence[torch.Tensor],
    eager: Sequence[torch.Tensor],
    other: Sequence[torch.Tensor],
) -> list[Error]:
    """Of each result; eager's error is the larger one of two."""
    found = []
    for e, o, m, t in zip(eager, other, made, sample.truth, strict=True):
        one = error_of(e, m.reshape(e.shape), t.reshape(e.shape))
        if o is not e:
            own = error_of(e, o.reshape(e.shape), t.reshape(e.shape))
            one.eager = max(one.eager, own.rewritten)
        found.append(one)
    return found


def error_of(eager: torch.Tensor, made: torch.Tensor, truth: torch.Tensor) -> Error:
    if not eager.is_floating_point():
        return Error(0.0, 0.0, 0.0, 1.0, False)
    known = eager.isfinite() & truth.isfinite()
    known &= truth.abs() <= torch.finfo(eager.dtype).max
    if bool(known.all()):  # of what is large, to pick elements takes longest
        lost = not bool(made.isfinite().all())
        e, m, t = eager, made, truth
    else:
        lost = bool((known & ~made.isfinite()).any())
        lost |= bool((eager.isnan() & truth.isnan() & ~made.isnan()).any())
        e, m, t = eager[known], made[known], truth[known]
    # relative to the largest, so that no square leaves the range of float64
    scale = (t.abs().max().item() if t.numel() else 0.0) or 1.0
    squares = [_mean_square(v, scale) for v in (e.double() - t, m.double() - t, t)]
    return Error(squares[0], squares[1], squares[2], torch.finfo(eager.dtype).eps, lost)


def _mean_square(v: torch.Tensor, scale: float) -> float:
    norm: torch.Tensor = torch.linalg.vector_norm(v / scale)
    return norm.item() ** 2 / v.numel() if v.numel() else 0.0


def meets(
    errors: Sequence[Sequence[Error]], bar: float, scaled: bool = False, noise: float = NOISE
) -> bool:
    """Whether errors of one sample, over its draws, are within the bar. scaled: eager may have
    nothing but noise, as of the example times a power of ten, of which a bias leaves no more. What
    is noise may have `noise` times eager's error."""
    for draws in zip(*errors, strict=True):
        if any(d.lost for d in draws):
            return False
        eager, made, values = (_rms([getattr(d, k) for d in draws]) for k in _SUMS)
        allowed = max(bar, noise) if scaled and eager > values / 2 else bar
        if not made <= allowed * eager + ULPS * draws[0].ulp * values:
            return False
    return True


_SUMS = ("eager", "rewritten", "values")


def ratio_of(errors: Sequence[Sequence[Error]], scaled: bool = False) -> float:
    worst = 0.0
    for draws in zip(*errors, strict=True):
        if any(d.lost for d in draws):
            return math.inf
        eager, made, values = (_rms([getattr(d, k) for d in draws]) for k in _SUMS)
        if scaled and eager > values / 2 and made <= NOISE * eager:
            continue  # noise on both sides
        half = draws[0].ulp / 2 * values
        worst = max(worst, (made + half) / (eager + half) if eager + half else 0.0)
    return worst


def _rms(squares: Sequence[float]) -> float:
    return math.sqrt(sum(squares) / len(squares))


OTHER = 2e-2  # an error relative to the results' RMS that no rounding of a sound model has
NOISE_OF_LEAVES = 1e-2  # rounding errors of a result beside the arguments and parameters
APART_ALONE = 100.0  # how many times smaller the error of the graph as captured is then


def another_function(samples: Samples) -> str | None:
    """How the graph as captured is another function than the model, or None.

    Capture follows the model with tensors that hold no values. A model may ask for that, as
    PyTorch's own encoder does, and compute otherwise with real ones.
    """
    sample = samples.get(samples.names[0])
    assert sample is not None
    for i, (eager, apart, truth) in enumerate(
        zip(sample.eager, sample.apart, sample.truth, strict=True)
    ):
        if not eager.is_floating_point() or not eager.numel():
            continue
        apart, truth = apart.reshape(eager.shape), truth.reshape(eager.shape)
        known = eager.isfinite() & truth.isfinite()
        values = truth[known].square().mean().sqrt().item() if known.any() else 0.0
        errors = [
            (v[known].double() - truth[known]).square().mean().sqrt().item() if known.any() else 0.0
            for v in (eager, apart)
        ]
        differs = errors[0] > OTHER * values and errors[0] > APART_ALONE * errors[1]
        differs = differs and not _is_noise(samples, sample, i, errors[0])
        # NaN on one side only; of the graph's two precisions either may have the model's
        lost = eager.isnan() & ~apart.isnan() & ~truth.isnan()
        made = ~eager.isnan() & apart.isnan()
        if differs or bool((lost | made).any()):
            return (
                "what can be captured of forward computes something else than forward itself does"
                f" (result {i}, on the example)"
            )
    return None


def _is_noise(samples: Samples, sample: Sample, i: int, error: float) -> bool:
    """Whether a result is nothing but eager's rounding errors, as that of a norm over one value: it
    is small beside what it is made of, and another one where the last digits of that differ."""
    nudged = samples.get(NUDGED)
    if nudged is None or not error <= NOISE_OF_LEAVES * max(map(_size, sample.leaves.values())):
        return False
    changed = nudged.eager[i].double() - sample.eager[i].double()
    known = changed.isfinite()
    return bool(known.any()) and _size(changed[known]) > error / 10


def _size(v: torch.Tensor) -> float:
    return v.double().square().mean().sqrt().item() if v.is_floating_point() and v.numel() else 0.0


def inaccurate(samples: Samples) -> str | None:
    """How the graph as captured is less accurate than the model, or None."""
    for name in samples.names:
        sample = samples.get(name)
        if sample is None:
            continue
        errors = [errors_of(sample, sample.apart, sample.eager, sample.eager)]
        if not meets(errors, APART, is_scaled(name)):
            again = (samples.get(name, draw) for draw in range(1, AGAIN + 1))
            errors += [errors_of(s, s.apart, s.eager, s.eager) for s in again if s is not None]
            if not meets(errors, APART, is_scaled(name)):
                return (
                    "its arithmetic taken apart would be less accurate than PyTorch's: it has"
                    f" {ratio_of(errors, is_scaled(name)):.3g} times eager's error on {words(name)}"
                )
    return None
