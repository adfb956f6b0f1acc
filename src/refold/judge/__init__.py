"""The judge: is a candidate file the same function as its reference, and how fast is it.

It imports nothing of refold but `refold.contract`. See docs/judge.md.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.judge.run import judge
    from refold.judge.verdict.task_kinds import tally
    from refold.judge.verdict.verdict import Speed, Status, Task, Timing, Verdict
    from refold.judge.wire.host import Limits

__all__ = ["Limits", "Speed", "Status", "Task", "Timing", "Verdict", "judge", "tally"]

_HOMES = {"judge": "run", "Limits": "wire.host", "tally": "verdict.task_kinds"}


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker does not import the oracle and the clock.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"refold.judge.{_HOMES.get(name, 'verdict.verdict')}"), name)


class _Callable(types.ModuleType):
    """Lets ``refold.judge(ref, cand)`` be the call and ``refold.judge.Status`` the name."""

    def __call__(self, *args: Any, **options: Any) -> Verdict:
        from refold.judge.run import judge

        return judge(*args, **options)


sys.modules[__name__].__class__ = _Callable
