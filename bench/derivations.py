"""What refold makes of each model, without compiling it: to compare before and after a change.

    python bench/derivations.py > after.txt     # the systems, P0 to P7, C0 to C6 and the tests' zoo
    python bench/derivations.py --only S0 P2 ResidualBlock

One line for each mode: "fast" with the predicted gain and the plan's kernels, calls and folds, or
"kept" with the reason. A model that raises is "refused". Sizes of the systems are those of their
files, except for the batch, so that memory suffices.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from refold import contract, pipeline
from refold.derive import Derivation, Options, derive

ROOT = Path(__file__).resolve().parent.parent
Make = Callable[[], tuple[torch.nn.Module, list[Any]]]
FOLDERS = {"S": "problems", "C": "bench/convolutions", "P": "bench/sums"}


def systems() -> Iterator[tuple[str, Make]]:
    for letter, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).glob("*.py")):
            yield f"{letter} {path.stem}", partial(_loaded, path)


def _loaded(path: Path) -> tuple[torch.nn.Module, list[Any]]:
    reference = contract.load(path)
    torch.manual_seed(0)
    module = reference.model_class(*reference.init_inputs())
    return module, list(reference.inputs())


def zoo() -> Iterator[tuple[str, Make]]:
    sys.path.insert(0, str(ROOT / "tests"))
    for name, cls in importlib.import_module("zoo").CASES.items():
        yield name, partial(_made, cls)


def _made(cls: Callable[[], Any]) -> tuple[torch.nn.Module, list[Any]]:
    torch.manual_seed(0)
    module = cls()
    return module, module.inputs()


def described(d: Derivation) -> str:
    plan, done = d.mode.plan, d.optimized
    if plan is None:
        return f"kept: {d.mode.kept}"
    assert done is not None
    gain = done.price_before / max(done.price_after, 1e-12)
    calls = len(plan.steps) - len(plan.groups)
    return (
        f"fast: predicted {gain:.2f}, kernels {len(plan.groups)}, calls {calls},"
        f" folds {len(plan.folds)}, after {done.price_after * 1e6:.4g} us; {d.accuracy}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--steps", action="store_true", help="print the rules that were used")
    args = parser.parse_args()
    _, device = pipeline.target_for(args.target, "ieee")
    for name, make in (*systems(), *zoo()):
        if args.only and not name.startswith(tuple(args.only)):
            continue
        try:
            module, inputs = make()
            for d in derive(module, inputs, device, Options(measure=False)):
                print(f"{name} {d.mode.name}: {described(d)}", flush=True)
                if args.steps and d.optimized is not None:
                    print("    " + ", ".join(s.rule for s in d.optimized.steps), flush=True)
        except Exception as error:
            print(f"{name}: refused: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
