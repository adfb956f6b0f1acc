"""The picture of README.md, from the rows: how many times as fast refold is as torch.compile.

python bench/picture.py [--output docs/gains.svg]

Of each model and mode the last row in which the judge accepted the file, in fp32. On the CPU beside
torch.compile, on the GPU beside the better of eager and torch.compile.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
SYSTEMS = {
    "S0": "linear, sum, max, mean, logsumexp",
    "S1": "linear, average pooling, GELU, max",
    "S2": "linear, scale, batch norm",
    "S3": "linear, batch norm, softmax",
    "S4": "linear, sigmoid, sum",
}
SIDES = (  # the file of the rows, the column of the ratio, the words
    ("cpu.csv", "to_compile", "CPU, 2 cores, beside torch.compile"),
    ("h200_systems.csv", "speedup", "H200, beside the better of eager and torch.compile"),
)
WIDE, LEFT, BAR, MOST = 760, 290, 11, 1000.0
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #59636e }
.a { fill: #2f6feb } .b { fill: #8250df } .grid { stroke: #d1d9e0 } .one { stroke: #59636e }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 }
.grid { stroke: #3d444d } .one { stroke: #9198a1 } .a { fill: #4493f8 } .b { fill: #ab7df8 } }
"""


def gains(name: str, column: str) -> dict[tuple[str, str], float]:
    """By model and mode the ratio of the last accepted row in fp32."""
    found = {}
    with (RESULTS / name).open() as file:
        for row in csv.DictReader(file):
            plain = (
                row.get("dtype", "float32") == "float32" and row.get("float32", "ieee") == "ieee"
            )
            if plain and row["verdict"] == "ACCEPTED" and row[column]:
                found[row["system"], row["mode"]] = float(row[column])
    return found


def place(ratio: float) -> float:
    """Where a ratio lies, on a scale of logarithms."""
    return LEFT + (WIDE - LEFT - 60) * math.log(ratio) / math.log(MOST)


def picture() -> str:
    """The SVG's text."""
    sides = [gains(name, column) for name, column, _ in SIDES]
    rows = sorted(k for k in {*sides[0], *sides[1]} if k[0] in SYSTEMS)
    lines, y = [], 66
    for i, (_, _, words) in enumerate(SIDES):
        lines.append(f'<rect class="{"ab"[i]}" x="{8 + 240 * i}" y="12" width="12" height="12"/>')
        lines.append(f'<text class="small" x="{26 + 240 * i}" y="22">{words}</text>')
    body = []
    for system, mode in rows:
        where = "" if mode == "both" else f", {mode}"
        body.append(f'<text x="8" y="{y + 15}">{SYSTEMS[system]}{where}</text>')
        for i, side in enumerate(sides):
            if (ratio := side.get((system, mode))) is None:
                continue
            top, end = y + i * (BAR + 2), place(max(ratio, 1.001))
            box = f'x="{LEFT}" y="{top}" width="{end - LEFT:.1f}" height="{BAR}"'
            body.append(f'<rect class="{"ab"[i]}" {box}/>')
            said = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}"
            body.append(f'<text class="small" x="{end + 5:.1f}" y="{top + 10}">{said}</text>')
        y += 2 * BAR + 12
    for tick in (1, 10, 100, 1000):
        x, kind = place(tick), "one" if tick == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="58" y2="{y}"/>')
        lines.append(f'<text class="small" x="{x:.1f}" y="50" text-anchor="middle">{tick}x</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {y + 8}" role="img">'
    title = "<title>How many times as fast refold is</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *lines, *body, "</svg>", ""])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--output", type=Path, default=RESULTS.parents[1] / "docs" / "gains.svg")
    args = asked.parse_args()
    args.output.write_text(picture())
    print(f"written: {args.output}")


if __name__ == "__main__":
    main()
