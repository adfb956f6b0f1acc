"""What a process does without for a while is there again, whichever thread goes last."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import torch

from refold.backend import inductor
from refold.meanwhile import Meanwhile, uncollected, unwarned


def state() -> tuple[object, ...]:
    from torch._inductor import exc

    return gc.isenabled(), [*warnings.filters], vars(exc.OperatorIssue)["operator_str"]


@pytest.mark.parametrize("change", [uncollected, unwarned, inductor._texts])
def test_threads_that_overlap_leave_it_as_it_was(change: Meanwhile) -> None:
    """The second comes while the first is in it, and goes last."""
    before = state()
    came, gone, failed = threading.Event(), threading.Event(), []

    def second() -> None:
        with change:
            came.set()
            failed.append(not gone.wait(60))
            failed.append(state() == before)

    with change:
        assert state() != before
        other = threading.Thread(target=second)
        other.start()
        assert came.wait(60)
    gone.set()
    other.join()
    assert failed == [False, False]
    assert state() == before


def test_it_is_undone_where_the_block_fails() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), unwarned, uncollected:
        torch.tensor(1 // 0)
    assert state() == before
