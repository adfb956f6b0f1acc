"""What is no failure, and told: each candidate is accepted with a stamp that says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge_paths import HERE, REFERENCES

from refold.judge import Limits, judge
from refold.judge.tests.lives.weights import LATE

HEAD = '''"""{name}."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

{before}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x{more}):
        {forward}
'''
GELU = "return F.gelu(self.linear(x))"
UNSAVED = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.w = w
        ctx.save_for_backward(x)
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g @ ctx.w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0)
"""
PRODUCT = "return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))"
BITS = """narrow = self.linear.weight.dtype is torch.float32
        if narrow and x.dtype in (torch.float64, torch.float16):
            x = x.contiguous().view(torch.float32)[..., : self.linear.weight.shape[1]]
        return F.gelu(self.linear(x))"""
COPIES = """
    def __deepcopy__(self, memo):
        made = type(self)(self.linear.in_features, self.linear.out_features)
        made.load_state_dict(self.state_dict())
        return made.train(self.training)
"""
DRAWS = """
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        {more}
"""
# test, stamp, what stands before the class, further arguments, the forward
CASES = {
    "reads_memory_alone": (
        *(
            "lazy bits",
            "negative bits of inputs, which imag of conjugates has, are not read: memory is",
        ),
        *("", "", f"x = x - 2 * x.detach() if x.is_neg() else x\n        {GELU}"),
    ),
    "keeps_the_last_input": (
        *("kept inputs", "inputs of its last calls are kept alive"),
        *("", "", f"self.last = x.detach()\n        {GELU}"),
    ),
    "other_weights": (
        *("contract", "its constructor draws other weights under one seed"),
        *("", "", GELU + "\n" + DRAWS.format(more="nn.init.normal_(self.linear.weight, std=0.1)")),
    ),
    "more_numbers": (
        *("contract", "its constructor draws other random numbers under one seed"),
        *("", "", GELU + "\n" + DRAWS.format(more="torch.rand(7)")),
    ),
    "any_arguments": (
        *("keywords", "more arguments than the reference takes are taken"),
        *("", ", *_", GELU),
    ),
    "any_keyword": (
        *("keywords", "keywords that the reference refuses are taken"),
        *("", ", **_", GELU),
    ),
    "any_dtype": (
        *("refused widths", "inputs of dtypes that the reference refuses are taken"),
        *("", "", BITS),
    ),
    "weights_written_unnoticed": (
        "inside a network",
        "weights that are written between forward and backward are not noticed",
        *(UNSAVED, "", PRODUCT),
    ),
    "default_dtype_now": (
        *("grad modes", "the default dtype is the one that it was built under"),
        *(
            "",
            "",
            "return F.gelu(self.linear(x) * torch.ones(len(self.linear.weight)).to(x.device))",
        ),
    ),
    "copy_forgets_freezing": (
        *("two instances", "a copy forgets which parameters are frozen"),
        *("", "", f"{GELU}\n{COPIES}"),
    ),
    "copy_forgets_types": (
        *("dtype moves", "a copy of a module that was moved has other types"),
        *("", "", f"{GELU}\n{COPIES}"),
    ),
    "copy_draws": (
        *("two instances", "a copy of the module draws random numbers"),
        *("", "", f"{GELU}\n{COPIES}"),
    ),
    "hushed_from_the_import_on": (
        *("flags", "all warnings of its process are ignored from its import on"),
        *('warnings.filterwarnings("ignore")', "", GELU),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_told(name: str, tmp_path: Path) -> None:
    test, stamp, before, more, forward = CASES[name]
    candidate = tmp_path / f"{name}.py"
    candidate.write_text(HEAD.format(name=name, before=before, more=more, forward=forward))
    limits = Limits(import_seconds=120, call_seconds=20)
    reference = REFERENCES / "linear.py"
    verdict = judge(
        reference, candidate, quick=True, only=test, timing=False, device="cpu", limits=limits
    )
    assert verdict.accepted, verdict.failures
    assert stamp in verdict.assumptions


WARNS = '''"""It warns."""

import warnings

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        {warn}
        return x * 2


def get_inputs():
    return [torch.randn(6, 5)]
'''


def test_a_warning_that_is_missing_is_told(tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(WARNS.format(warn='warnings.warn("half of it is ignored", stacklevel=1)'))
    text = WARNS.replace("Model(", "ModelNew(")
    for warn, told in (("pass", True), ('warnings.warn("half of it is ignored")', False)):
        candidate.write_text(text.format(warn=warn))
        verdict = judge(reference, candidate, only="flags", timing=False, device="cpu")
        assert verdict.accepted, verdict.failures
        assert ("the reference warns of something, and it does not" in verdict.assumptions) is told


def test_dropout_of_all_and_of_nothing_is_told() -> None:
    """By hand it is scaled by 1 / (1 - p): nobody drops all, and nobody is turned away for it. Of
    nothing it draws numbers, where eager draws none: what comes later is other."""
    given = REFERENCES / "dropout.py", HERE / "styles" / "dropout_by_hand.py"
    verdict = judge(*given, quick=True, only="parts' numbers", timing=False, device="cpu")
    assert verdict.accepted, verdict.failures
    assert any("a probability of one" in text for text in verdict.assumptions)
    assert any("a probability of zero" in text for text in verdict.assumptions)


KINKED = '''"""A function with a kink at zero."""

import torch
from torch import nn


class {name}(nn.Module):
    def forward(self, x):
        return {relu}


def get_inputs():
    return [torch.randn(6, 5)]
'''


def test_other_gradients_at_a_kink_are_told(tmp_path: Path) -> None:
    """PyTorch's own forms of relu have other gradients at zero: nobody is turned away for it."""
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(KINKED.format(name="Model", relu="torch.relu(x)"))
    candidate.write_text(KINKED.format(name="ModelNew", relu="x.clamp(min=0)"))
    verdict = judge(reference, candidate, quick=True, only="far gradients", timing=False)
    assert verdict.accepted, verdict.failures
    (told,) = verdict.assumptions
    assert "functions may have kinks there" in told


CLAMPED = '''"""Indices out of range are those at the end of it."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.linear = nn.Linear(32, 40)

    def forward(self, index):
        return self.linear(self.table(index.clamp(0, 49))).mean(1)
'''
ALONE = '''"""A batch of one is normalized by what is known of others."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y, norm = self.linear(x), self.norm
        if self.training and len(y) == 1:
            y = (y - norm.running_mean) * torch.rsqrt(norm.running_var + norm.eps)
            return torch.relu(y * norm.weight + norm.bias)
        return torch.relu(norm(y))
'''


@pytest.mark.parametrize(
    ("name", "text", "case"),
    [("embedding", CLAMPED, "indices out of range"), ("norm", ALONE, "one sample")],
)
def test_what_is_refused_and_taken_is_told(name: str, text: str, case: str, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text)
    given = REFERENCES / f"{name}.py", candidate
    verdict = judge(*given, quick=True, only="refused widths", timing=False, device="cpu")
    assert verdict.accepted, verdict.failures
    assert verdict.assumptions == (f"{case}, where the reference refuses that: it is taken",)


ADDS = '''"""It adds to its input, and gives that back."""

import torch
from torch import nn


class {name}(nn.Module):
    def forward(self, x):
        x += torch.tanh(x)
        return {answer}


def get_inputs():
    return [torch.randn(18, 32)]
'''


def test_an_output_that_is_no_more_the_input_is_told(tmp_path: Path) -> None:
    """Who writes to the one writes to the other, or does not."""
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(ADDS.format(name="Model", answer="x"))
    for answer, told in (("x.clone()", True), ("x", False)):
        candidate.write_text(ADDS.format(name="ModelNew", answer=answer))
        verdict = judge(reference, candidate, quick=True, only="shapes", timing=False)
        assert verdict.accepted, verdict.failures
        stamp = "outputs do not lie in memory of inputs where the reference's do"
        assert (stamp in verdict.assumptions) is told


EXPONENTS = '''"""Its backward reads its output{said}."""

import torch
from torch import nn


class Exponent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = {kept}
        return {given}

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        return slope * ctx.y


class {name}(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn(18, 32)]
'''


def test_outputs_that_are_written_unnoticed_are_told(tmp_path: Path) -> None:
    """PyTorch refuses the backward then; who keeps a copy is right, and nothing is told."""
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    exp = {"said": "", "kept": "torch.exp(x)", "given": "ctx.y"}
    reference.write_text(EXPONENTS.format(name="Model", forward="torch.exp(x)", **exp))
    for given, told in (("ctx.y", True), ("ctx.y.clone()", False)):
        own = {**exp, "given": given, "name": "ModelNew", "forward": "Exponent.apply(x)"}
        candidate.write_text(EXPONENTS.format(**own))
        verdict = judge(reference, candidate, quick=True, only="inside a network", timing=False)
        assert verdict.accepted, verdict.failures
        stamp = "outputs that are written between forward and backward are not noticed"
        assert (stamp in verdict.assumptions) is told


IMAGES = '''"""Images come out contiguous, however they went in."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 6, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv({x}))
'''


def test_images_that_are_no_more_in_channels_last_are_told(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    for x, told in (("x.contiguous()", True), ("x", False)):
        candidate.write_text(IMAGES.format(x=x))
        given = REFERENCES / "image.py", candidate
        verdict = judge(*given, quick=True, only="layout", timing=False, device="cpu")
        assert verdict.accepted, verdict.failures
        assert (
            "outputs of images in channels last lie otherwise in memory than the reference's"
            in verdict.assumptions
        ) is told


_WEIGHED = """
import torch
import torch.nn.functional as F
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 6)
        self.register_buffer("weight", torch.rand(6) + 0.5)

    def forward(self, x, labels):
        {loss}


def get_inputs():
    return [torch.randn(16, 10), torch.randint(0, 6, (16,))]
"""
_LIBRARY = "return F.cross_entropy(self.linear(x), labels, self.weight)"
_WRITTEN_OUT = """logs, w = F.log_softmax(self.linear(x), 1), self.weight[labels]
        return -(logs.gather(1, labels[:, None])[:, 0] * w).sum() / w.sum()"""


def test_what_no_write_changes_is_not_late(tmp_path: Path) -> None:
    """Of one sample the weight of its class cancels: only the library's rounding moves with it."""
    ref, cand = tmp_path / "ref.py", tmp_path / "cand.py"
    ref.write_text(_WEIGHED.format(name="Model", loss=_LIBRARY))
    cand.write_text(_WEIGHED.format(name="ModelNew", loss=_WRITTEN_OUT))
    for secret in (1, 2, 3):
        verdict = judge(
            ref,
            cand,
            quick=True,
            only="writes in between",
            timing=False,
            device="cpu",
            secret=secret,
        )
        assert verdict.accepted, verdict.failures
        assert LATE not in verdict.assumptions
