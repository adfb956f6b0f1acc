"""Whether it was the candidate that changed something outside of its process.

Whoever runs a judgement may give its processes another priority, or other processors, while it
runs. So a new worker has to do it again before it counts; files that are judged are another matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire import forkserver

MOVED = "the judge's processes were scheduled otherwise while it ran"


def outside(session: Session, *others: int) -> Iterator[Failure]:
    """What the candidate changed; ``others``: processes that are to run as this one does. What
    somebody else changed becomes a note that begins with `MOVED`."""
    found = session.outside.moved(*others)
    if found and not _again(session):
        session.notes.append(f"{MOVED}: {found[0]}; a new worker did not do it again")
        found = []
    for text in (*found, *session.outside.written()):
        yield session.fail(Status.CHEATS, "outside its process", text)


def _again(session: Session) -> bool:
    """Whether a new worker, under what was before, does it again."""
    before, now = session.outside.scheduled, session.outside.present()
    _anew(session, before)
    assert session.reload is not None
    with session.reload() as host:
        host.request("put", 60, slot="x", inputs=session.inputs())
        host.request("call", 60, slot="x", seed=session.seed + 7)
        if session.outside.moved():
            return True
    _anew(session, now)  # as whoever it was wanted it
    return False


def _anew(session: Session, scheduled: dict[int, tuple[object, ...]]) -> None:
    forkserver.retire()
    forkserver.schedule(scheduled)
    server = forkserver.start(session.threads)
    session.outside = session.outside.again(server.pid)
