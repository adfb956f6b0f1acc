"""The command `explain`: the derivation, the plan and how far it is from the floor."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from refold import __version__, baselines, pipeline
from refold.baselines import Contest
from refold.derive import Options, derive
from refold.devices import DEVICES, is_at_hand
from refold.emit.held import own_bytes
from refold.judge.ask.look import render
from refold.report import commands, terminal
from refold.report.explained import explained


def explain(args: argparse.Namespace) -> int:
    """`refold explain`."""
    target, device = commands.chosen_target(args)
    page = commands.writable(args.html, args.reference) if args.html else None
    if args.measure and (page is None or not is_at_hand(DEVICES[target.name])):
        raise commands.UsageError("--measure is for --html, and for the target that is at hand")
    reference, module, inputs = commands.prepared(args, target)
    options = Options(
        strict=args.strict,
        unsafe=args.unsafe,
        memory=args.memory,
        convolutions=args.convolutions,
    )
    device = pipeline.with_convolutions(device, options)
    derivations = derive(module, inputs, device, options)
    own = own_bytes(module)
    if page is not None:
        from refold.report.pages.derivation import by_name, of_mode

        contests = _measured(args, module, inputs) if args.measure else {}
        modes = [
            of_mode(d, device, module, inputs, by_name(contests, d.mode.name), args.strict)
            for d in derivations
        ]
        text = render(
            "report",
            "explain.jinja",
            title=reference.path.name,
            sets=args.sets,
            target=target.name,
            version=f"refold {__version__}, PyTorch {torch.__version__}",
            modes=modes,
            parameters=terminal.size(own),
            seconds=terminal.seconds,
        )
        Path(page).write_text(text, encoding="utf-8")
    rows = [explained(d, device, args.graph, args.plan) for d in derivations]
    rows = [r if r.get("kept") else r | {"parameter_bytes": own} for r in rows]
    if args.json:
        print(json.dumps(rows, indent=2))
    elif page is not None:
        terminal.written(page)
    else:
        terminal.explained(str(args.reference), rows)
    return 0


def _measured(
    args: argparse.Namespace, module: torch.nn.Module, inputs: list[Any]
) -> dict[str, Contest | None]:
    """Times beside eager and torch.compile, by mode."""
    target, device = commands.chosen_target(args)
    options = Options(
        args.strict,
        args.unsafe,
        measure=True,
        memory=args.memory,
        convolutions=args.convolutions,
        baselines=baselines.DEFAULT,
    )
    with terminal.progress(enabled=not args.json) as step:
        found = pipeline.run(module, inputs, "", "", target, device, options, step, _bind(module))
    return {d.mode.name: d.contest for d in found.derivations}


def _bind(module: torch.nn.Module) -> Any:
    return lambda text: pipeline.bind_for_class(text, module)
