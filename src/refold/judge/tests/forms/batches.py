"""Lives in which the module is called with other numbers of samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import Seen, begin, call, living
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.room import starving
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status

_BATCHES = (65, 129, 257, 1025, 4099)
_MOST_BYTES = 64 << 20
_SMALL = 130  # numbers of samples up to this one are all tried, where a call takes little
_LARGEST = 2050
_DRAWN = 24  # of the larger ones
# of the calls in the first mode, and in another one; beyond, where it is one of many tests, a
# secret choice of sizes: of models that take long so many that others have room, too
_SECONDS, _OTHER_MODE = 0.7, 0.5
_SLOW, _CHOSEN = 1e-3, 0.4  # seconds of a call above which it is a choice, and of all these calls
# of eager's calls in one mode, and of one call in either: of a loop over samples, which takes as
# much longer as they are more, there would be no time for other tests
_MOST_SECONDS, _LONG = 1.0, 0.25
# times as many samples: what these take says what each takes; not asked of who takes so long
_MORE, _KNOWN = 8, 1e-2
_CALLS = 2  # the first step that is one: a module is built, and its mode set
_REFUSED = 3  # sizes that the reference may refuse


def _batches(session: Session) -> Iterator[Life]:
    given = session.inputs()
    held = tensors(given)
    truth = session.truth(given).eager
    if not held or not held[0].dim() or truth is None or not held[0].shape[0]:
        return
    batch = held[0].shape[0]
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    size = sum(t.numel() * t.element_size() for t in (*held, *tensors(truth.outputs)))
    took, drawn = _seconds(session), random.Random(session.secret ^ 4)
    for new in _BATCHES:
        if new != batch and size / batch * new < _MOST_BYTES:
            sized = {"x0": draws.resized(given, batch, new, iter(first))}
            status = Status.WRONG_NUMERICS
            modes = list(dict.fromkeys((session.oracle.training, False)))
            if took(new) > _LONG and not session.alone:
                modes = [drawn.choice(modes)]
            for train in modes:
                where = "" if train == session.oracle.training else ", in eval mode"
                steps = (*begin(train), call("y"))
                yield Life(f"batch {new}{where}", steps, sized, status=status)


def _seconds(session: Session) -> Callable[[int], float]:
    """What the reference takes for so many samples, by an estimate: a straight line through what it
    takes for its own number and for some times as many; nothing where it does not take these, and
    on a GPU, where a call of other sizes may end its use."""
    if session.device.type != "cpu" or session.call_seconds > _KNOWN:
        return lambda _: 0.0
    given = session.inputs()
    held = tensors(given)
    batch = held[0].shape[0]
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    more = draws.resized(given, batch, _MORE * batch, iter(first))
    session.oracle_enter(session.base_state)
    try:
        each = (session.oracle.call_seconds(more) - session.call_seconds) / ((_MORE - 1) * batch)
    except Exception as error:
        if starving(error):
            raise
        return lambda _: 0.0
    return lambda n: max(0.0, session.call_seconds + each * (n - batch)) if each > 0 else 0.0


def _every(session: Session) -> Iterator[Seen]:
    given = session.inputs()
    held = tensors(given)
    truth = session.truth(given).eager
    if not held or not held[0].dim() or truth is None or not held[0].shape[0]:
        return
    batch = held[0].shape[0]
    size = sum(t.numel() * t.element_size() for t in (*held, *tensors(truth.outputs))) / batch
    for i, train in enumerate(dict.fromkeys((session.oracle.training, False))):
        yield from _every_in(session, train, _sizes(session, size, i))


def _every_in(session: Session, train: bool, sizes: list[int]) -> Iterator[Seen]:
    given = session.inputs()
    held = tensors(given)
    batch = held[0].shape[0]
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    for _ in range(_REFUSED):
        if not sizes:
            return
        most = {"x0": draws.resized(given, batch, max(sizes), iter(first))}
        steps = [*begin(train), *(call(f"batch {n}", rows=n) for n in sizes)]
        case = "" if train == session.oracle.training else "in eval mode"
        apart = not (session.random or session.remembers(train))
        one = Life(case, tuple(steps), most, status=Status.WRONG_NUMERICS, apart=apart)
        seen = life.eager(session, one)
        raised = seen.raised
        if raised is None:
            yield one, seen
            return
        if raised["step"] < _CALLS:
            return
        sizes.pop(raised["step"] - _CALLS)


def _sizes(session: Session, each: float, mode: int) -> list[int]:
    """All small numbers of samples, those about powers of two and a secret choice; fewer where
    calls take long, others in each of the modes, or outputs are large."""
    drawn = random.Random(session.secret ^ 2 + mode)
    about = [b << k for b in (1, 3) for k in range(6, 11)]
    large = {n + by for n in about for by in (-1, 0, 1)}
    large |= set(drawn.sample(range(_SMALL, _LARGEST), _DRAWN))
    sizes = [*range(1, _SMALL), *sorted(n for n in large if _SMALL <= n <= _LARGEST)]
    slow = session.call_seconds > _SLOW
    seconds = _CHOSEN * _OTHER_MODE**mode if slow else _SECONDS
    count = int(seconds / (3 * session.call_seconds + 5e-4))
    if count < len(sizes) and not session.alone:
        sizes = sorted(drawn.sample(sizes, max(count, 8)))
    took = _seconds(session)
    while sizes and (
        sum(sizes) * each > _MOST_BYTES
        or (sum(map(took, sizes)) > _MOST_SECONDS and not session.alone)
    ):
        sizes = sorted(drawn.sample(sizes, len(sizes) * 3 // 4))
    drawn.shuffle(sizes)  # a smaller batch behind a larger one meets what that has left
    return sizes


TESTS: tuple[Test, ...] = (
    living(
        "batches",
        "grids of a fixed size, tails of blocks",
        "Batches of 65 to 4099, within 64 MB; in eval mode, too, or in one of both where a call "
        "takes long.",
        _batches,
        40,
    ),
    living(
        "every batch",
        "a few numbers of samples that are wrong, rows that a larger batch has left",
        "Every number of samples up to 129 and many up to 2050, in a secret order; of slow models, "
        "and of loops over samples, a secret choice; in eval mode, too.",
        _every,
        48,
        lives=4,
    ),
)
