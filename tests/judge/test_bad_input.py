"""References that nothing can be judged by: each ends in one line that names what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge_paths import REFERENCES

from refold.cli import main
from refold.judge import Status, judge

GOOD = (REFERENCES / "linear.py").read_text()
FORWARD = "return torch.nn.functional.gelu(self.linear(x))"
INPUTS = "return [torch.rand(batch_size, in_features)]"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (FORWARD, "raise ValueError('no\\nway')", "came ValueError: no way; fix the reference"),
        (FORWARD, "raise SystemExit(5)", "came SystemExit: 5; fix the reference"),
        (FORWARD, "return None", "to return tensors and plain values, came NoneType"),
        (FORWARD, "return 'text'", "to return tensors and plain values, came str"),
        (FORWARD, "return {1, 2}", "to return tensors and plain values, came builtins.set"),
        (FORWARD, "return (t for t in [x])", "came builtins.generator"),
        (INPUTS, "raise SystemExit(3)", "came SystemExit: 3; fix get_inputs"),
        (INPUTS, "return [object()]", "to give tensors and plain values, came builtins.object"),
        (INPUTS, "return [torch.rand(2, 256).to_sparse()]", "torch.sparse_coo"),
        (INPUTS, "return ['text']", "expected Model to take get_inputs(), came TypeError"),
        (INPUTS, "return [Pair(torch.rand(2, 256), 1)]", "came a named tuple, Pair"),
    ],
)
def test_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str
) -> None:
    assert old in GOOD
    pair = "import collections\n\nPair = collections.namedtuple('Pair', 'x y')\n"
    (tmp_path / "ref.py").write_text(GOOD.replace(old, new) + pair)
    (tmp_path / "cand.py").write_text(GOOD.replace("Model(", "ModelNew("))
    files = [str(tmp_path / "ref.py"), str(tmp_path / "cand.py")]
    assert main(["judge", *files, "--device", "cpu", "--quick", "--no-timing"]) == 2
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1
    assert says in printed.err


def test_outputs_that_are_always_nan_have_no_power(tmp_path: Path) -> None:
    text = GOOD.replace(FORWARD, FORWARD + " * float('nan')")
    (tmp_path / "ref.py").write_text(text)
    (tmp_path / "cand.py").write_text(
        text.replace("Model(", "ModelNew(").replace(
            FORWARD, "return torch.full_like(self.linear(x), float('nan'))"
        )
    )
    files = (tmp_path / "ref.py", tmp_path / "cand.py")
    verdict = judge(*files, only="numerics", quick=True, device="cpu")
    assert verdict.status is Status.INCONCLUSIVE, verdict.failures
