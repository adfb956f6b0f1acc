"""Does the shorter command still find faults? Each of them, one at a time, in a copy of the tree.

    python tests/faults.py [NAME ...] [--write]

Each row of FAULTS is a text of the source and what stands in its place: a guard that is gone, a
sign, a bound, a barrier. The tests beside it are files of `make test`, with `make test`'s choice of
cases; one of them has to fail. Golden files are not among them: they see any change of a text, and
say nothing of what it does. First all of these tests run without a fault, and have to pass.

--write puts the table into docs/testing.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- faults -->\n", "<!-- end of faults -->\n"
# what a copy holds, and what may be there beside the sources
COPIED = ("src", "tests", "bench", "problems", "examples", "docs")
FILES = ("pyproject.toml", "README.md", "DESIGN.md", "Makefile")


@dataclass(frozen=True)
class Fault:
    """file, old, new: the first `old` in src/refold/`file` becomes `new`, or each does. tests:
    arguments of pytest; `-k` keeps a part of a file where one part is enough."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    each: bool = False


FAULTS = (
    Fault(
        "a rule holds for any axis",
        "rules/through.py",
        "where=(lambda v: self._axes(v) == (-1,)) if",
        "where=(lambda v: True) if",
        ("tests/rules/test_rules.py", "-k", "sum-through-linear"),
    ),
    Fault(
        "a factor may have any sign",
        "rules/reduce_affine.py",
        '"x s+ @axes"',
        '"x s @axes"',
        ("tests/rules/test_rules.py", "-k", "max-of-positively-scaled"),
    ),
    Fault(
        "a rule that may lose range has no mark",
        "rules/linear.py",
        '        mark="range",\n',
        "",
        ("tests/rules/test_shadow.py", "-k", "linear"),
    ),
    Fault(
        "a bound is too high",
        "ir/ops/pointwise.py",
        '_function("sigmoid", monotone=rises, bounds=within(0.0, 1.0)',
        '_function("sigmoid", monotone=rises, bounds=within(0.25, 1.0)',
        ("tests/ir/test_op_facts.py",),
    ),
    Fault(
        "the order of a difference does not matter",
        "engine/egraph.py",
        "if node.row.commutative:",
        'if node.row.commutative or node.op == "sub":',
        ("tests/engine/test_egraph.py", "tests/engine/test_optimize.py"),
    ),
    Fault(
        "values of 16 bits are not rounded before they are compared",
        "capture/widen.py",
        "jumps = n.row.jumps or (",
        "jumps = n.row.jumps and not n.row.is_comparison or (",
        ("tests/test_dtypes.py", "-k", "several_dtypes or compared"),
    ),
    Fault(
        "softmax does not subtract the maximum",
        "planner/lower.py",
        'shifted = make("sub", x, make("max", x, axes=axes))',
        "shifted = x",
        ("tests/test_accuracy.py", "tests/test_random_models.py", "tests/test_gpu_plans.py"),
    ),
    Fault(
        "a value is narrowed although others read it",
        "plan/memory.py",
        "if len(wanted) == 1 and all(map(is_narrowing, readers)):",
        "if wanted := {r.dtype for r in readers if is_narrowing(r)}:",
        ("tests/test_plan_reference.py", "tests/test_dtypes.py", "tests/test_random_models.py"),
    ),
    Fault(
        "a result lies over a value that a later kernel reads",
        "planner/buffers.py",
        "return made and not read_later and inside",
        "return made and node not in self.roots",
        ("tests/engine/test_random_plans.py", "tests/test_plan_reference.py"),
    ),
    Fault(
        "any part of a value begins where it does",
        "planner/buffers.py",
        'if node.op != "slice" or node["start"] != 0:',
        'if node.op != "slice":',
        ("tests/test_plan_buffers.py", "tests/engine/test_random_plans.py"),
    ),
    Fault(
        "sizes that belong together are not compared",
        "emit/guards.py",
        '(f"{here} != {dim.text(seen)}", reason)',
        '("False", reason)',
        ("tests/test_sizes.py", "tests/test_calls.py", "tests/test_emitted_module.py"),
    ),
    Fault(
        "a fold is not computed anew when a counted write is seen",
        "runtime/folds.py",
        "before[i] != now[i] or id(b) in stepped",
        "id(b) in stepped",
        ("tests/test_life.py", "tests/test_emitted_module.py"),
    ),
    Fault(
        "gradients of parameters are not asked for",
        "runtime/folds.py",
        'for path in (*sources, *mode["unread"]):',
        "for path in ():",
        ("tests/test_emitted_module.py", "tests/test_life.py"),
    ),
    Fault(
        "hooks of children are not seen",
        "runtime/structure.py",
        """return "forward" in vars(module) or any(c is None or c""",
        """return "forward" in vars(module) or any(c is not None and c""",
        ("tests/test_life.py", "tests/test_unchanged.py"),
    ),
    Fault(
        "the memory of parameters is not looked at",
        "kernels/watch.h",
        "if (!as_sampled(c, h.words, m.at + c.samples)) return kContent;",
        "(void)c;",
        ("tests/test_life.py", "tests/test_unchanged.py"),
    ),
    Fault(
        "moments of chunks merge without the distance of their means",
        "kernels/cpu/monoid.h",
        "m2 += o.m2 + delta * (delta * (count * share));",
        "m2 += o.m2;",
        ("tests/test_models.py", "tests/test_accuracy.py", "tests/test_dtypes.py"),
    ),
    Fault(
        "the last columns of a product are packed from the wrong row",
        "families/matmul/cpu/gemm.h",
        "std::min(r + i, count - 1) * ld + k;",
        "std::min(r + i, count - 1 - (count > 1 ? 1 : 0)) * ld + k;",
        ("tests/kernels/test_cpu_product.py",),
    ),
    Fault(
        "a part of a logsumexp is not scaled when it merges",
        "kernels/cuda/monoid.cuh",
        "exp(p.w[0] - base) + q.w[1] * exp(q.w[0] - base);",
        "exp(p.w[0] - base) + q.w[1];",
        ("tests/kernels/test_cuda_monoids.py",),
    ),
    Fault(
        "a stage is read while it is copied",
        "families/matmul/cuda/matmul_sm80.cuh",
        "cp_async_wait<S::kStages - 2>();",
        "cp_async_wait<S::kStages - 1>();",
        ("tests/gpu/test_matmul.py", "-k", "generic"),
    ),
    Fault(
        "a shift comes out of windows that hang over the image",
        "rules/additive.py",
        'return not any(paddings) and not v["ceil_mode"]',
        'return not v["ceil_mode"]',
        ("tests/rules/test_rules.py", "-k", "image-pool"),
    ),
    Fault(
        "a stage of a convolution is read while it is copied",
        "families/convolution/cuda/convolution_sm80.cuh",
        "cp_async_wait<S::kStages - 2>();",
        "cp_async_wait<S::kStages - 1>();",
        ("tests/test_convolutions.py", "-k", "any_size or special_values"),
    ),
    Fault(
        "images that share a tile are stored where the first lies",
        "families/convolution/cuda/strip_epilogue.cuh",
        "(at.image + (joined.has(image) ? image : 0)) * kChannels",
        "at.image * kChannels",
        ("tests/test_random_convolutions.py", "-k", "joined and any_width"),
        each=True,  # where values are computed, and where they are stored
    ),
    Fault(
        "warps do not wait for each other's partial results",
        "kernels/cuda/sync.cuh",
        '  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");',
        "",
        ("tests/gpu/test_rows.py", "-k", "Softmax"),
    ),
    Fault(
        "fields of objects that forward reads are not compared",
        "runtime/settings.py",
        "return {k: v for k, v in fields.items() if k in names}",
        "return {}",
        ("tests/test_holders.py", "tests/test_unchanged.py"),
    ),
    Fault(
        "what forward may ask for by a text is not seen",
        "runtime/met.py",
        """read |= {f"{t}'" for t in texts""",
        """read |= {f"{t}'" for t in ()""",
        ("tests/test_asked.py",),
    ),
    Fault(
        "methods of parts are not followed",
        "runtime/reach.py",
        "for name in sorted(own & wanted):",
        "for name in ():",
        ("tests/test_reached.py",),
    ),
    Fault(
        "what a partial holds is not followed",
        "runtime/met.py",
        "inner = (one.func, one.args, one.keywords)",
        "inner = ()",
        ("tests/test_runtime.py",),
    ),
    Fault(
        "memory is read past an input's negative bit",
        "runtime/calls.py",
        "if not value.is_neg() and",
        "if",
        ("tests/test_calls.py", "tests/test_emitted_module.py"),
    ),
    Fault(
        "a result is stored in 16 bits of its own",
        "planner/quantize.py",
        "or product.value in kept or",
        "or",
        ("tests/test_quantized.py",),
    ),
    Fault(
        "two kernels compute what may have other bits in each",
        "planner/recomputed.py",
        "if row.kind is not Kind.POINTWISE or not (row.is_exact or row.selects):",
        "if row.kind is not Kind.POINTWISE:",
        ("tests/test_recomputed.py",),
    ),
    Fault(
        "what forward itself sets is new to it",
        "runtime/structure.py",
        """if f"{path}.{name}".strip(".") not in assigned""",
        "if True",
        ("tests/test_asked.py",),
    ),
    Fault(
        "results follow no order of arguments",
        "layouts.py",
        "if others and _follows(module, example, c):",
        "if False:",
        ("tests/test_results_memory.py",),
    ),
    Fault(
        "the judge allows a hundred times eager's error",
        "judge/rule/rows.py",
        "K_FLOAT32 = 16.0",
        "K_FLOAT32 = 1600.0",
        (
            "tests/judge/test_parts.py",
            "tests/judge/test_candidates.py",
            "-k",
            "not candidate or half",
        ),
    ),
    Fault(
        "the judge does not see writes to inputs",
        "judge/tests/once/mutation.py",
        'for index in set(reply["changed"]) - set(truth.eager.changed):',
        "for index in set():",
        ("tests/judge/test_candidates.py", "-k", "reject_23 or reject_34"),
        each=True,  # inputs as they are, and views of them
    ),
    Fault(
        "the judge does not compare where values are not finite",
        "judge/rule/compare.py",
        "    bad = _masks(got, eager, exact, finite_only)",
        "    bad = None",
        (
            "tests/judge/test_error_rule.py",
            "tests/judge/test_candidates.py",
            "-k",
            "special or no_max",
        ),
    ),
    Fault(
        "the judge believes outputs of timed calls",
        "judge/clock/outputs.py",
        "    yield from session.compared(case, got, truth, Status.CHEATS)",
        "    yield from ()",
        ("tests/judge/test_candidates.py", "-k", "attack_late_replay or attack_tight_loop"),
    ),
)


@dataclass(frozen=True)
class Found:
    """failed: how many tests failed, 0 where nobody sees the fault. first: the first of them."""

    failed: int
    first: str
    seconds: float


def copied(folder: Path) -> Path:
    """A copy of the tree without what was made in it."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def run(tree: Path, tests: Sequence[str], first: bool) -> Found:
    """Runs tests of a tree; raises RuntimeError if none ran. first: end at the first that fails."""
    more = ["-x"] if first else []
    settings = {"PYTHONPATH": str(tree / "src"), "OMP_WAIT_POLICY": "passive"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *more, *tests],
        cwd=tree,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - began
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout)
    if done.returncode not in (0, 1, 2) or (done.returncode == 2 and not failed):
        raise RuntimeError(f"{' '.join(tests)}: no test ran:\n{done.stdout[-2000:]}{done.stderr}")
    return Found(len(failed), failed[0] if failed else "", seconds)


def row(fault: Fault, found: Found) -> str:
    said = f"`{found.first.removeprefix('tests/')}`" if found.failed else "**nothing**"
    return f"| {fault.name} | `{fault.file}` | {said} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("names", nargs="*", help="parts of faults' names; all if there are none")
    parser.add_argument("--write", action="store_true", help="put the table into docs/testing.md")
    parser.add_argument(
        "--no-control", action="store_true", help="do not run without a fault first"
    )
    args = parser.parse_args(arguments)
    chosen = [f for f in FAULTS if not args.names or any(n in f.name for n in args.names)]
    rows, missed = [], 0
    with tempfile.TemporaryDirectory(prefix="refold_faults_") as folder:
        tree = copied(Path(folder))
        if not args.no_control:
            for tests in dict.fromkeys(f.tests for f in chosen):
                found = run(tree, tests, first=True)
                if found.failed:
                    print(f"without a fault {found.first} fails: mend that first")
                    return 2
        for fault in chosen:
            path = tree / "src" / "refold" / fault.file
            before = path.read_text()
            if fault.old not in before:
                print(f"{fault.name}: {fault.file} has no {fault.old!r} any more")
                return 2
            path.write_text(before.replace(fault.old, fault.new, -1 if fault.each else 1))
            found = run(tree, fault.tests, first=True)
            path.write_text(before)
            missed += not found.failed
            rows.append(row(fault, found))
            print(f"{rows[-1]}  {found.seconds:.0f} s", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults are found")
    if args.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        table = ["| fault | in src/refold | found first by |", "|---|---|---|", *rows]
        PAGE.write_text(head + BEGIN + "\n".join(table) + "\n" + END + rest.partition(END)[2])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
