"""What the clock asks of a GPU beside seconds: kernels, times inside a CUDA graph."""

from __future__ import annotations

import time

from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status, Timing
from refold.judge.wire.host import Host, Raised

_GRAPH_BELOW = 200e-6  # seconds of a call, of which launching may be most
_GRAPH_LAP = 50e-3  # seconds of its replays


def kernels(session: Session, candidate: Host) -> list[Failure]:
    """A failure where one call of the candidate launches no kernel, by the profiler."""
    session.test = "work"
    names = candidate.request("kernels", 60)
    if names:
        return []
    return [session.fail(Status.CHEATS, "kernels", "one call launches no kernel on the device")]


def graphs(eager: Host, candidate: Host, timing: Timing) -> list[str]:
    """Times without launch overhead, both sides graphed, where calls are short."""
    if timing.candidate.median > _GRAPH_BELOW:
        return []
    try:
        sides = ((eager, timing.eager), (candidate, timing.candidate))
        pair = [_graphed(host, seconds.median) for host, seconds in sides]
    except Raised as error:
        return [f"no CUDA-graph times: {error}"]
    return [f"in a CUDA graph: eager {pair[0] * 1e6:.1f} us, candidate {pair[1] * 1e6:.1f} us"]


def _graphed(host: Host, each: float) -> float:
    """Seconds per call inside a CUDA graph, by the parent's clock: replays of many less of few.
    each: seconds of a call outside of one."""
    calls = int(max(1, min(20, _GRAPH_LAP / each)))
    more = int(max(2, min(200, _GRAPH_LAP / (calls * each))))
    few, many = max(1, more // 20), max(1, more // 20) + more
    host.request("graph", 60, calls=calls)
    walls = {}
    for replays in (few, many):
        laps = []
        for _ in range(5):
            began = time.perf_counter()
            host.request("replay", 60, times=replays)
            laps.append(time.perf_counter() - began)
        walls[replays] = min(laps)
    return max(walls[many] - walls[few], 0.0) / (calls * (many - few))
