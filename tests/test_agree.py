"""The tests' own rule for values must refuse what is wrong."""

from __future__ import annotations

import pytest
import torch

from agree import check_close

TRUTH = torch.linspace(-1, 1, 50, dtype=torch.float64)
EAGER = TRUTH.float() * (1 + 1e-7)


def changed(value, at=7):
    got = EAGER.clone()
    got[at] = value
    return got


def test_eager_agrees_with_itself():
    check_close(EAGER, EAGER, TRUTH)


@pytest.mark.parametrize(
    "got",
    [
        changed(float("nan")),
        changed(float("inf")),
        changed(0.5),
        EAGER.double(),
        EAGER[:, None],
        torch.full_like(EAGER, float("nan")),
    ],
    ids=("one NaN", "one infinity", "one number", "dtype", "shape", "all NaN"),
)
def test_what_is_wrong_is_refused(got):
    with pytest.raises(AssertionError):
        check_close(got, EAGER, TRUTH)


def test_nan_and_infinity_must_stay():
    for value in (float("nan"), float("inf")):
        eager, truth = changed(value), TRUTH.clone()
        truth[7] = value
        check_close(eager, eager, truth)
        with pytest.raises(AssertionError):
            check_close(EAGER, eager, truth)
