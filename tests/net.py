"""A digest of every text that the zoo's models become: what a change of structure must not change.

    python tests/net.py before.txt --texts before      # at the commit to compare with
    python tests/net.py after.txt --texts after        # after the change
    diff before.txt after.txt                          # empty, or a list of what changed
    diff -r before after                               # how

A line names a model, a target, the accuracy of float32 products and the models' dtype, then the
digest of the emitted text. Headers and the runtime are the same in every file: in the texts their
names stand for them, and their own digests come first, so that a change of one header is one line.
A model whose text cannot be written has its reason in the place of the digest.

With `--prices FILE` the predicted microseconds a call of each mode and the kernels of its plan go
to a file of their own: a change of the rules may raise none of them (`--compare OLD` says which).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402

from captures import captured_once, drawn, forget  # noqa: E402
from refold import pipeline  # noqa: E402
from refold.codegen.headers import header, names  # noqa: E402
from refold.derive import Options  # noqa: E402
from refold.emit.embed import runtime_text  # noqa: E402
from zoo import CASES  # noqa: E402

# (target, accuracy, dtype); the CPU's products of float32 have one accuracy
COLUMNS = (
    ("cpu", "ieee", torch.float32),
    ("cuda:sm_80", "ieee", torch.float32),
    ("cuda:sm_80", "tf32", torch.float32),
    ("cuda:sm_90", "ieee", torch.float32),
    ("cuda:sm_90", "tf32", torch.float32),
    ("cpu", "ieee", torch.bfloat16),
    ("cuda:sm_90", "ieee", torch.float16),
)
_NAME = re.compile(r'"(refold_\w+)_[0-9a-f]{12}"')  # of an extension, by a hash of its text


def emitted(name: str, target: str, float32: str, dtype: torch.dtype) -> tuple[str, list[str]]:
    """The text of a zoo model, its headers and runtime replaced by their names; or the reason why
    every mode keeps the original, on one line. And the price of each mode."""
    module, inputs = drawn(name, dtype)
    back, device = pipeline.target_for(target, float32)
    with captured_once():
        result = pipeline.run(
            module,
            inputs,
            "# Model is bound.",
            name,
            back,
            device,
            Options(measure=False, accuracy=False),
        )
    prices = [
        f"{d.mode.name} {d.optimized.price_after * 1e6:.6f} {len(d.mode.plan.groups)}"
        for d in result.derivations
        if d.optimized is not None and d.mode.plan is not None
    ]
    if result.text is None:
        return f"kept: {' | '.join(result.reasons)}", prices
    text = result.text.replace(runtime_text("cpu"), "# <runtime>")
    for h in names():
        text = text.replace(header(h).strip("\n"), f"// <{h}>")
    return _NAME.sub(r'"\1"', text), prices


def texts(
    names: Iterable[str], columns: Sequence[tuple[str, str, torch.dtype]] = COLUMNS
) -> Iterator[tuple[str, str, list[str]]]:
    """(what is written, its text, the prices of its modes) of each model in each column; equal in
    every run."""
    for name in names:
        for target, float32, dtype in columns:
            kind = str(dtype).removeprefix("torch.")
            text, prices = emitted(name, target, float32, dtype)
            yield f"{name} {target} {float32} {kind}", text, prices
        forget()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def raised(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Lines of prices of which the price is higher than before, each with the old price."""
    before = {line.rsplit(" ", 2)[0]: float(line.split()[-2]) for line in old}
    found = []
    for line in new:
        what, price, _ = line.rsplit(" ", 2)
        if float(price) > before.get(what, float("inf")) * (1 + 1e-6):
            found.append(f"{line}, before {before[what]:.6f}")
    return found


def line(what: str, text: str) -> str:
    return f"{what} {text if text.startswith('kept: ') else digest(text)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="where the digests go, a line each")
    parser.add_argument("--texts", type=Path, help="a folder for the texts themselves")
    parser.add_argument("--only", nargs="+", default=list(CASES), help="models of the zoo")
    parser.add_argument("--prices", type=Path, help="where the predicted prices go")
    parser.add_argument("--compare", type=Path, help="prices of before: tell which are higher now")
    given = parser.parse_args()
    if given.texts:
        given.texts.mkdir(parents=True, exist_ok=True)
    prices: list[str] = []
    with given.file.open("w") as out:
        for h in names():
            print(f"header {h} {digest(header(h))}", file=out)
        print(f"runtime {digest(runtime_text('cuda'))}", file=out)
        for what, text, modes in texts(given.only):
            print(line(what, text), file=out, flush=True)
            prices += [f"{what} {mode}" for mode in modes]
            if given.texts:
                (given.texts / what.replace(" ", ".").replace(":", "-")).write_text(text)
    if given.prices:
        given.prices.write_text("".join(f"{p}\n" for p in prices))
    if given.compare:
        higher = raised(given.compare.read_text().splitlines(), prices)
        print("\n".join(higher) or f"none of {len(prices)} prices is higher")
        sys.exit(bool(higher))


if __name__ == "__main__":
    main()
