"""The tests, by name. Each yields outcomes; none decides anything but its own matter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from refold.judge.bench import Bench, Rejected, Trial, inputs_like, with_rows
from refold.judge.compare import compare, structure, tensors
from refold.judge.verdict import Outcome, Status

BIG = 512 << 20  # bytes of state up to which it is sent whole


@dataclass(frozen=True)
class Test:
    """name and what it catches; quick: part of the quick subset."""

    name: str
    catches: str
    run: Callable[[Bench, list[Any]], Iterator[Outcome]]
    quick: bool = True


TESTS: list[Test] = []


def test(name: str, catches: str, quick: bool = True) -> Callable[[Any], Any]:
    def register(function: Callable[[Bench, list[Any]], Iterator[Outcome]]) -> Any:
        TESTS.append(Test(name, catches, function, quick))
        return function

    return register


def _judged(name: str, trial: Trial, wrong: Status, words: str = "", seed: int = 0) -> Outcome:
    d = trial.difference
    if d.ratio <= 1.0:
        return Outcome(name, Status.ACCEPTED, words, d.ratio, seed)
    status = wrong if d.numerics else Status.WRONG_CONTRACT
    return Outcome(name, status, f"{words}: {d.detail}" if words else d.detail, d.ratio, seed)


def _small(bench: Bench, inputs: list[Any], rows: int = 7) -> list[Any]:
    try:
        return with_rows(inputs, rows)
    except Rejected:
        return inputs


def _normal(inputs: list[Any], seed: int, scale: float = 1.0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)

    def draw(t: torch.Tensor) -> torch.Tensor:
        return (torch.randn(t.shape, generator=generator) * scale).to(t.dtype)

    return inputs_like(inputs, draw)


@test("contract", "missing, renamed or reordered parameters; other numbers at construction")
def contract(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    own = bench.model.state_dict()
    wanted = {k: [list(v.shape), str(v.dtype)] for k, v in own.items()}
    whole = sum(v.numel() * v.element_size() for v in own.values()) <= BIG
    names = [k for k, v in own.items() if whole or v.numel() <= 1 << 24]
    reply, state = bench.worker.ask("state", whole=True, names=names)
    if reply["shapes"] != wanted:
        missing = sorted(set(wanted) - set(reply["shapes"]))
        extra = sorted(set(reply["shapes"]) - set(wanted))
        changed = [k for k in wanted if k in reply["shapes"] and reply["shapes"][k] != wanted[k]]
        yield Outcome(
            "contract",
            Status.WRONG_CONTRACT,
            f"the state_dict differs: missing {missing}, extra {extra}, changed {changed}",
        )
        return
    for k in names:
        if not torch.equal(state[k], own[k]):
            yield Outcome(
                "contract",
                Status.WRONG_CONTRACT,
                f"{k} is drawn otherwise than in the reference under the same seed",
            )
            return
    yield Outcome("contract", Status.ACCEPTED)


@test("numerics", "lower precision, wrong arithmetic, constants")
def numerics(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    yield from _at_scales(bench, inputs, (("the file's own inputs", None), ("normal", 1.0)))


@test("numerics-scales", "ranges of half precision, lost small values", quick=False)
def numerics_scales(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    yield from _at_scales(bench, inputs, (("tiny", 2.0**-20), ("large", 2.0**10)))


def _at_scales(
    bench: Bench, inputs: list[Any], cases: tuple[tuple[str, float | None], ...]
) -> Iterator[Outcome]:
    for words, scale in cases:
        given = inputs if scale is None else _normal(inputs, bench.seed + 1, scale)
        for training in (False, True):
            bench.train(training)
            trial = bench.try_inputs(given)
            yield _judged("numerics", trial, Status.WRONG_NUMERICS, words, bench.seed)
            if scale is None:
                yield from _vacuity(trial)
        bench.synchronise()
    bench.train(False)


def _vacuity(trial: Trial) -> Iterator[Outcome]:
    """Zeros and the mean have to fail by the same rule, else the case says nothing."""
    answers: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "zeros": lambda t: torch.zeros_like(t),
        "the mean": lambda t: (
            t.double().mean().to(t.dtype).expand_as(t).clone()
            if t.is_floating_point() and t.numel() > 1
            else torch.zeros_like(t)
        ),
    }
    for (path, eager), (_, truth) in zip(tensors(trial.eager), tensors(trial.truth), strict=True):
        if not eager.is_floating_point() or eager.numel() == 0:
            continue
        for words, answer in answers.items():
            if compare(answer(eager), eager, truth).ratio <= 1.0:
                yield Outcome(
                    "vacuity", Status.INCONCLUSIVE, f"{words} pass for {path}: no power to tell"
                )


@test("plain-output", "lazy tensors, subclasses, other strides")
def plain_output(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    trial = bench.try_inputs(given)
    for (path, got), (_, eager) in zip(tensors(trial.got), tensors(trial.eager), strict=False):
        layout = bench.worker.layouts.get(id(got))
        if layout is None:
            continue
        if layout.kind not in ("Tensor", "Parameter") or layout.device != "cpu":
            yield Outcome(
                "plain-output",
                Status.WRONG_CONTRACT,
                f"{path} is a {layout.kind} on {layout.device}",
            )
        if layout.stride != tuple(eager.stride()):
            yield Outcome(
                "plain-output",
                Status.WRONG_CONTRACT,
                f"{path} has strides {layout.stride}, the reference's {tuple(eager.stride())}",
            )
    yield _judged("plain-output", trial, Status.WRONG_NUMERICS)


@test("reload", "weights baked or folded once")
def reload(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    own = bench.model.state_dict()
    floating = {k: v for k, v in own.items() if v.is_floating_point() and v.numel() * 4 <= BIG}
    generator = torch.Generator().manual_seed(bench.seed + 5)
    bench.try_inputs(given)

    def perturbed(v: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(v.shape, generator=generator).to(v.dtype)
        return (
            v * 1.25 + 0.1 * v.std().nan_to_num(1.0) * noise if v.numel() > 1 else v + 0.5 * noise
        )

    bench.write({k: perturbed(v) for k, v in floating.items()})
    yield _judged(
        "reload", bench.try_inputs(given), Status.STALE_WEIGHTS, "after an in-place update"
    )
    for k, v in floating.items():
        bench.write({k: perturbed(v)})
        yield _judged(
            "reload", bench.try_inputs(given), Status.STALE_WEIGHTS, f"after an update of {k}"
        )
    if sum(v.numel() * v.element_size() for v in own.values()) <= BIG:
        bench.load({k: perturbed(v) if k in floating else v for k, v in own.items()})
        yield _judged(
            "reload", bench.try_inputs(given), Status.STALE_WEIGHTS, "after load_state_dict"
        )
        bench.worker.ask("duplicate")
        bench.write({k: perturbed(v) for k, v in floating.items()})
        yield _judged(
            "reload", bench.try_inputs(given), Status.STALE_WEIGHTS, "after deepcopy and update"
        )
        bench.worker.ask("roundtrip")
        yield _judged(
            "reload", bench.try_inputs(given), Status.STALE_WEIGHTS, "after to(float64) and back"
        )


@test("shapes", "kernels for one shape, skipped tails")
def shapes(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    found = [t for _, t in tensors(inputs) if t.dim()]
    first = found[0].shape[0] if found else 1
    sizes = [0, 1, 2, 3, 17]
    if first <= 256:
        sizes.append(first + 1)
    for rows in sizes:
        with contextlib.suppress(Rejected):
            trial = bench.try_inputs(_normal(with_rows(inputs, rows), bench.seed + rows))
            yield _judged("shapes", trial, Status.WRONG_NUMERICS, f"a batch of {rows}")


@test("layout", "assumed strides, offsets and alignment")
def layout(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    for kind in ("transposed", "sliced", "shifted"):
        trial = bench.try_inputs(given, layout=kind)
        yield _judged("layout", trial, Status.WRONG_NUMERICS, f"{kind} inputs")


@test("mutation", "writes to inputs, parameters, the random state or global flags")
def mutation(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    given = _small(bench, inputs)
    bench.train(False)
    names = [k for k, v in bench.model.state_dict().items() if v.numel() <= 1 << 24]
    _, before = bench.worker.ask("state", whole=True, names=names)
    before = {k: v.clone() for k, v in before.items()}
    calls = [bench.try_inputs(given) for _ in range(2)]
    for trial in calls:
        for (path, now), (_, was) in zip(tensors(trial.after), tensors(given), strict=True):
            if not _same_bits(now, was):
                yield Outcome("mutation", Status.MUTATES, f"input {path} was written")
                return
        if trial.reply["drew"]:
            yield Outcome("mutation", Status.MUTATES, "random numbers were drawn in eval mode")
            return
    if calls[0].reply["flags"] != calls[1].reply["flags"]:
        yield Outcome("mutation", Status.CHEATS, "global flags were changed")
        return
    _, after = bench.worker.ask("state", whole=True, names=names)
    for k in names:
        if not _same_bits(before[k], after[k]):
            yield Outcome("mutation", Status.MUTATES, f"{k} was written in eval mode")
            return
    yield Outcome("mutation", Status.ACCEPTED)


@test("aliasing", "one output buffer for all calls")
def aliasing(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    first = bench.try_inputs(given, keep=True)
    kept = [t.clone() for _, t in tensors(first.got)]
    bench.try_inputs(_normal(given, bench.seed + 9), keep=True)
    _, again = bench.worker.ask("look_again")
    if all(_same_bits(a, b) for a, (_, b) in zip(kept, tensors(again), strict=True)):
        yield Outcome("aliasing", Status.ACCEPTED)
    else:
        yield Outcome("aliasing", Status.MUTATES, "an earlier output changed at a later call")


@test("cache", "outputs remembered by address, fingerprint or call count")
def cache(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    for i in range(6):

        def edit(t: torch.Tensor, i: int = i) -> torch.Tensor:
            changed = t.clone()
            if changed.numel():
                changed.view(-1)[(i * 7919) % changed.numel()] += 3.0
            return changed

        given = inputs_like(given, edit)
        trial = bench.try_inputs(given)
        yield _judged("cache", trial, Status.CHEATS, f"edit {i} of one element")


@test("repeat", "races")
def repeat(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs, 33)
    first = bench.try_inputs(given)
    kept = [t.clone() for _, t in tensors(first.got)]
    for _ in range(5):
        _, (again, _) = bench.worker.ask("call", given)
        if not all(_same_bits(a, b) for a, (_, b) in zip(kept, tensors(again), strict=True)):
            eager = [
                all(_same_bits(x, y) for (_, x), (_, y) in zip(tensors(a), tensors(b), strict=True))
                for a, b in [(bench.eager_again(given), bench.eager_again(given))]
            ]
            status = Status.NONDETERMINISTIC if all(eager) else Status.ACCEPTED
            yield Outcome("repeat", status, "the same call gave different bits")
            return
    yield Outcome("repeat", Status.ACCEPTED)


@test("hostile-values", "softmax without its maximum, lost NaN and infinities, cancellation")
def hostile(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _normal(_small(bench, inputs), bench.seed + 3)
    nan, inf = float("nan"), float("inf")
    edits: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "one NaN": lambda t: t.view(-1)[t.numel() // 2].fill_(nan),
        "one +inf": lambda t: t.view(-1)[t.numel() // 3].fill_(inf),
        "one -inf": lambda t: t.view(-1)[t.numel() // 3].fill_(-inf),
        "zeros": lambda t: t.zero_(),
        "a shift of 1000": lambda t: t.add_(1000.0),
        "denormals": lambda t: t.mul_(1e-40),
        "a row of 1e30": lambda t: t.view(-1)[: t.shape[-1]].fill_(1e30),
    }
    for words, change in edits.items():

        def edit(t: torch.Tensor, change: Any = change) -> torch.Tensor:
            changed = t.clone().contiguous()
            if changed.numel():
                change(changed)
            return changed

        if "inf" in words and bench.assumes == "finite":
            continue  # the candidate says so, and the verdict carries it
        trial = bench.try_inputs(inputs_like(given, edit))
        yield _judged("hostile-values", trial, Status.WRONG_NUMERICS, words)


@test("modes", "ignored train or eval mode, wrong running statistics")
def modes(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    for i, training in enumerate((True, True, False, True, False)):
        bench.train(training)
        words = "train mode" if training else "eval mode"
        try:
            trial = bench.try_inputs(_normal(_small(bench, inputs, 19 + i), bench.seed + i))
        except Rejected:
            continue
        yield _judged("modes", trial, Status.WRONG_MODE, words)
        d = bench.buffers_differ()
        if not d.ratio <= 1.0:
            yield Outcome("modes", Status.WRONG_MODE, f"buffers after {words}: {d.detail}", d.ratio)
        bench.synchronise()
    bench.train(False)


@test("gradients", "wrong gradients")
def gradients(bench: Bench, inputs: list[Any]) -> Iterator[Outcome]:
    bench.train(False)
    given = _small(bench, inputs)
    reference = _gradients(bench.model, given)
    if reference is None:
        return
    reply, found = bench.worker.ask("gradients", given)
    if reply["none"]:
        yield Outcome("gradients", Status.ACCEPTED, "inference only")
        return
    truth = _gradients(bench.oracle, inputs_like(given, torch.Tensor.double))
    if truth is None or structure(found) != structure(reference):
        yield Outcome("gradients", Status.WRONG_CONTRACT, "gradients of other shapes")
        return
    d = compare(found, reference, truth)
    good = d.ratio <= 1.0
    yield Outcome(
        "gradients", Status.ACCEPTED if good else Status.WRONG_NUMERICS, d.detail, d.ratio
    )


def _gradients(model: torch.nn.Module, inputs: list[Any]) -> list[Any] | None:
    given = [
        v.clone().requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for v in inputs
    ]
    leaves = [t for _, t in tensors(model(*given)) if t.requires_grad]
    if not leaves:
        return None
    wanted = [v for v in given if isinstance(v, torch.Tensor) and v.requires_grad]
    wanted += list(model.parameters())
    total = sum(t.double().square().sum() for t in leaves)
    return list(torch.autograd.grad(total, wanted, allow_unused=True))  # type: ignore[arg-type]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.numel():
        return True
    return torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)
    )
