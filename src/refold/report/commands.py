"""The command `optimize`: run the pipeline, judge, write, report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold import baselines, contract, pipeline
from refold.derive import Options
from refold.devices import DEVICES, DeviceModel, is_at_hand
from refold.emit.cuda import NO_CUDA, NO_NVCC, compile_emitted, nvcc
from refold.emit.target import Target
from refold.judge import Status, Verdict, aside
from refold.judge.wire import frames, sent
from refold.pipeline import OptimizeError, Result
from refold.report import terminal, told
from refold.report.rows import few_rows
from refold.report.times import times_of
from refold.runtime.nvrtc import _refold_nvrtc


class UsageError(Exception):
    """What was asked for cannot be asked for; the text is one line for the user."""


KEPT, UNRUN = 3, 4  # exit codes
USAGE = (UsageError, contract.ArgumentError)
EXPECTED = (*USAGE, contract.ContractError, OptimizeError, OSError)  # their text is for the user


def chosen_target(args: argparse.Namespace) -> tuple[Target, DeviceModel]:
    """The target asked for, or the one at hand; PyTorch's flags are set to the accuracy asked for.

    The judge's workers take theirs from the environment, which is how PyTorch lets TF32 be allowed
    from outside.
    """
    float32 = args.float32 or pipeline.default_float32()
    if args.conv_float32 is not None:
        torch.backends.cudnn.allow_tf32 = args.conv_float32 == "tf32"
    target, device = pipeline.target_for(args.target or pipeline.default_target(), float32)
    if (warning := device.device.warning) is not None:
        print(f"refold: {warning}", file=sys.stderr)
    if target.device == "cuda":
        torch.set_float32_matmul_precision("high" if float32 == "tf32" else "highest")
        os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = str(int(float32 == "tf32"))
    return target, device


def writable(output: str, reference: str) -> Path:
    """A file to write, links followed. Raises where it could not be written in the end."""
    path = Path(output).resolve()
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"the output folder {folder} does not exist; create it first")
    if path.is_dir():
        raise UsageError(f"the output {output} is a folder; name a file")
    if path.exists() and not path.is_file():
        raise UsageError(f"the output {output} is no ordinary file; name another")
    if path.exists() and Path(reference).exists() and path.samefile(reference):
        raise UsageError(f"the output {output} is the reference itself; name another file")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"the output {output} is not writable")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"the output folder {folder} is not writable ({reason})") from error
    os.close(handle)
    Path(name).unlink()
    return path


def _check_compiler(target: Target) -> None:
    if target.device == "cuda" and nvcc() is None and _refold_nvrtc() is None:
        raise OptimizeError(f"there is {NO_CUDA}: {NO_NVCC}")
    compiler = os.environ.get("CXX", "c++")
    if shutil.which((shlex.split(compiler) or [""])[0]) is None:
        raise OptimizeError(
            f"no C++ compiler: {compiler} is not on PATH; install one, or name it in CXX"
        )


def prepared(
    args: argparse.Namespace, target: Target, judged: bool = False
) -> tuple[contract.Reference, torch.nn.Module, list[Any]]:
    """The reference, a model and its inputs, on the target's device if it is at hand.

    judged: what the judge could not be sent is refused here, not when all kernels are compiled.
    """
    reference = contract.load(args.reference, args.sets)
    place = target.device if is_at_hand(DEVICES[target.name]) else "cpu"
    module = reference.make(seed=0).to(place)
    inputs = reference.inputs(seed=1)
    for value in pytree.tree_leaves(inputs):
        if isinstance(value, torch.Tensor) and value.device.type not in ("cpu", place):
            raise OptimizeError(
                f"get_inputs() gives a tensor on {value.device}; the target is {target.name}:"
                " make it there"
            )
    inputs = pytree.tree_map_only(torch.Tensor, lambda v: v.to(place), inputs)
    try:
        with torch.no_grad():
            results = module(*inputs)
    except (Exception, SystemExit) as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise OptimizeError(
            f"{reference.path}: forward raised {type(error).__name__}: {first}"
        ) from error
    if judged:
        sent.check_arguments(reference.path, inputs, reference.init_inputs(seed=0))
        # of a set, say, the capture tells why the original is kept
        if not frames.unknown(results).startswith("builtins."):
            sent.check_results(reference.path, results)
    # forward may have moved the running statistics
    return reference, reference.make(seed=0).to(place), inputs


@dataclass(frozen=True)
class Outcome:
    """What `optimize` did: its exit code (see cli.py), and what `--json` prints."""

    code: int
    report: dict[str, Any]


def optimize(args: argparse.Namespace) -> int:
    """`refold optimize`: see the exit codes in cli.py."""
    with terminal.progress(enabled=not args.json) as step:
        found = optimized(args, step)
    report = found.report
    if args.json:
        print(json.dumps(report, indent=2))
    elif found.code == KEPT:
        terminal.kept(report["output"], report["reason"])
        terminal.left_out(report["modes"])
    elif found.code == UNRUN:
        terminal.unrun(report["output"], report["target"])
    else:
        terminal.optimized(report)
    return found.code


def optimized(args: argparse.Namespace, step: Callable[..., None]) -> Outcome:
    """Optimize, judge and write as `args` of the command line ask.

    args: of the command line; and perhaps `facts`, which asks for the judge's word on all that the
    algebra wrote, whether or not it is faster, and `secret`, the judge's. step: called with what is
    begun, and perhaps a part of it. Raises one of EXPECTED where nothing was written.
    """
    target, device = chosen_target(args)
    at_hand = is_at_hand(DEVICES[target.name])
    output = writable(args.output, args.reference)
    _check_compiler(target)
    if not at_hand:
        return _optimized(args, step, target, device, output, None)
    # it imports torch while the model is captured
    with aside.begun(target.device, torch.get_num_threads()) as judge:
        return _optimized(args, step, target, device, output, judge)


def _optimized(
    args: argparse.Namespace,
    step: Callable[..., None],
    target: Target,
    device: DeviceModel,
    output: Path,
    judge: Callable[..., Verdict] | None,
) -> Outcome:
    """``judge``: None where the device is not at hand."""
    step("loading the reference")
    reference, module, inputs = prepared(args, target, judged=judge is not None)
    # nothing that was compiled before in this process is taken for this model's
    torch._dynamo.reset()
    given = (reference.source_with_sets, _title(reference, args), target)
    options = _options(args, target, judge is not None)

    def judged(text: str) -> Verdict:
        assert judge is not None
        # where it will lie: the model's file may read what lies beside it
        with tempfile.NamedTemporaryFile(
            "w", prefix=f".{output.stem}_", suffix=".py", dir=output.parent
        ) as file:
            candidate = Path(file.name)
            candidate.write_text(text)
            step("judging")
            return judge(
                args.reference,
                candidate,
                sets=args.sets,
                device=target.device,
                quick=not args.full,
                full=args.full,
                timing=False,
                secret=getattr(args, "secret", None),
                progress=lambda test: step("judging", test),
                semantic_sets=few_rows(reference, args.sets),
            )

    apart = getattr(args, "facts", False)

    def with_facts(outcome: Outcome, result: Result, rejected: str = "") -> Outcome:
        if not apart:
            return outcome
        found = told.facts(made, result, first, rejected)
        return Outcome(outcome.code, outcome.report | {"facts": found})

    made = result = pipeline.written(module, inputs, *given, device, options, step)
    verdict = first = None
    if apart and judge is not None and made.text is not None:
        verdict = first = judged(made.text)
        if not _passes(verdict, made):
            reason = _refused(verdict)
            return with_facts(_keep(reference, output, reason, [], verdict), made, reason)
    if made.text is not None and options.measure:
        result = pipeline.timed(made, module, inputs, *given, options, step)
    if result.text is None:
        times = times_of(module, inputs, result, target.device)
        reason = "; ".join(dict.fromkeys(result.reasons))
        return with_facts(_keep(reference, output, reason, times, None), result)
    if judge is None:
        return with_facts(_unrun(reference, output, result, target, step), result)
    if verdict is None or result.text != made.text:
        verdict = judged(result.text)
    if not _passes(verdict, result):
        reason = _refused(verdict)
        return with_facts(_keep(reference, output, reason, [], verdict), result)
    step("timing the folds")
    times = times_of(module, inputs, result, target.device, device)
    _write(output, _stamped(result.text, _seen_by(verdict, args.full)))
    report = told.report(reference, module, result, verdict, times, target, args)
    return with_facts(Outcome(0, report), result)


def _options(args: argparse.Namespace, target: Target, at_hand: bool) -> Options:
    names = baselines.every(target.device) if args.baselines else baselines.DEFAULT
    if args.no_compile:
        names = tuple(n for n in names if not baselines.compiles(n))
    return Options(
        args.strict,
        args.unsafe,
        measure=at_hand,
        tune=at_hand and not args.no_tune,
        seconds=args.seconds,
        baselines=names,
        memory=args.memory,
        convolutions=args.convolutions,
    )


def _passes(verdict: Verdict, result: Result) -> bool:
    """Accepted; or without power to tell, where the model's output does not depend on its input."""
    constant = any(d.optimized and d.optimized.independent_outputs for d in result.derivations)
    return verdict.accepted or (verdict.status is Status.INCONCLUSIVE and constant)


def _refused(verdict: Verdict) -> str:
    blind = verdict.status is Status.INCONCLUSIVE
    said = "cannot tell whether the kernels are right" if blind else "rejected the kernels"
    return f"the judge {said} ({verdict.summary})"


def _seen_by(verdict: Verdict, full: bool) -> str:
    """Which verdict a file has, and what that says."""
    if not verdict.accepted:  # see `_passes`
        told = "its output does not depend on the input, and a constant would pass as well"
    else:
        count = sum(t.outcome == "passed" for t in verdict.tests)
        told = f"no disagreement found by {count} tests"
        left = [t.name for t in verdict.tests if t.note.startswith("left out")]
        if left:
            told += f"; left out: {', '.join(left)} (refold judge --full runs them)"
    also = f"; assumed: {', '.join(verdict.assumptions)}" if verdict.assumptions else ""
    kind = "full" if full else "quick"
    return f"The judge's {kind} verdict on this file: {verdict.status.value}, {told}{also}."


def _stamped(text: str, told: str) -> str:
    """The text with a paragraph more behind its first line."""
    first, rest = text.split("\n", 1)
    lines = textwrap.wrap(told, 97, break_long_words=False, break_on_hyphens=False)
    return "\n".join([first, "#", *(f"# {line}" for line in lines), rest])


def _title(reference: contract.Reference, args: argparse.Namespace) -> str:
    sets = f" with {', '.join(args.sets)}" if args.sets else ""
    return f"The original is {reference.path.name}{sets}"


def _keep(
    reference: contract.Reference,
    output: Path,
    reason: str,
    times: list[dict[str, Any]],
    verdict: Verdict | None,
) -> Outcome:
    """Write the original as it is. times: of each mode, where it was timed. verdict: on kernels
    that were made."""
    text = reference.source_with_sets.rstrip("\n")
    one_line = " ".join(reason.split())
    text += f"\n\n\n# Kept by refold as it is: {one_line}.\nModelNew = Model\n"
    _write(output, text)
    report = {"kept": True, "reason": one_line, "output": str(output), "modes": times}
    return Outcome(KEPT, report | (told.said(verdict) if verdict else {}))


def _unrun(
    reference: contract.Reference,
    output: Path,
    result: Result,
    target: Target,
    step: pipeline.Progress,
) -> Outcome:
    """Write a file whose target is not at hand: compiled, never run."""
    assert result.text is not None
    step("compiling the kernels")
    problem = compile_emitted(result.text)
    if problem is not None:
        raise OptimizeError(f"the kernels do not compile: {problem}")
    _write(output, _stamped(result.text, "The judge has not seen this file: it was not run."))
    report = {"output": str(output), "target": target.name, "run": False}
    return Outcome(UNRUN, report | {"reference": str(reference.path), "label": result.label})


def _write(path: Path, text: str) -> None:
    """Replace the file whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.resolve().parent)
    try:
        with os.fdopen(handle, "w") as f:
            f.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


__all__ = ["EXPECTED", "USAGE", "Outcome", "UsageError", "optimize", "optimized"]
