"""How tiles are dealt out to the blocks of a Hopper product, computed on the host."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from itertools import pairwise

import pytest

from .host_library import on_host

# tiles, slots, steps of K: more than one wave and less, two slots a tile and four, steps fewer than
# slots, a wave that comes out even
CUTS = [
    *((1024, 66, 64), (96, 66, 64), (88, 132, 18), (36, 66, 47), (33, 132, 100), (34, 66, 3)),
    *((35, 132, 1), (132, 132, 5), (200, 7, 1000)),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    found = on_host("stream_k", tmp_path_factory.mktemp("stream_k"))
    found.deal.restype = found.joined.restype = ctypes.c_long
    return found


def deal(library: ctypes.CDLL, cut: tuple[int, int, int], share: bool) -> list[tuple[int, ...]]:
    """(slot, tile, first step, last and one, steps before) in each slot's order."""
    room = 4 * cut[0] + 4 * cut[1]
    out = (ctypes.c_int * (5 * room))()
    count = library.deal(*map(ctypes.c_long, cut), int(share), out, ctypes.c_long(room))
    assert count <= room
    return [tuple(out[5 * i : 5 * i + 5]) for i in range(count)]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_each_step_of_each_tile_is_done_once(
    library: ctypes.CDLL, cut: tuple[int, int, int], share: bool
) -> None:
    tiles, slots, steps = cut
    done: dict[int, list[tuple[int, int]]] = defaultdict(list)
    before: dict[int, int] = defaultdict(int)
    for slot, tile, begin, end, count in deal(library, cut, share):
        assert 0 <= begin < end <= steps and count == before[slot]
        assert share or (begin, end) == (0, steps)
        before[slot] += end - begin
        done[tile].append((begin, end))
    assert sorted(done) == list(range(tiles))
    for parts in done.values():
        edges = sorted(parts)
        assert edges[0][0] == 0 and edges[-1][1] == steps
        assert all(a[1] == b[0] for a, b in pairwise(edges))
    if share:
        most, least = max(before.values()), min(before[s] for s in range(slots))
        assert most - least <= 1


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_each_part_that_is_left_is_added_once(
    library: ctypes.CDLL, cut: tuple[int, int, int]
) -> None:
    """By the slot with the tile's last part; and no slot leaves a part after it has waited."""
    work = deal(library, cut, True)
    left = {(s, tile) for s, tile, _, end, _ in work if end < cut[2]}
    assert len({s for s, _ in left}) == len(left), "a slot has room for one part"
    waited: set[int] = set()
    for slot, tile, begin, end, _ in work:
        if end < cut[2]:
            assert slot not in waited
        elif begin > 0:
            waited.add(slot)
            out = (ctypes.c_int * cut[1])()
            sizes = map(ctypes.c_long, (*cut, slot))
            for i in range(library.joined(*sizes, begin, out)):
                left.remove((out[i], tile))
    assert not left


@pytest.mark.parametrize(
    ("tiles", "steps", "pays", "though_dear"),
    [
        (2048, 64, True, False),  # 15.5 waves of 132: 3% are spared
        (192, 64, True, True),  # 1.45
        (1000, 64, True, False),  # 7.6: a twentieth
        (590, 64, True, True),  # 4.5: a tenth
        (256, 128, False, False),  # 1.94: little is spared
        (128, 512, False, False),  # 0.97
        (140, 64, False, False),  # 1.06: many would share a tile
        (192, 8, False, False),  # joining takes longer than what is spared
        (264, 64, False, False),  # two
        # what tests/gpu/test_matmul.py means to share: tall, wide
        *((176, 18, True, True), (72, 47, True, True), (66, 47, True, True)),
    ],
)
def test_what_is_left_over_is_shared_where_that_pays(
    library: ctypes.CDLL, tiles: int, steps: int, pays: bool, though_dear: bool
) -> None:
    sizes = [ctypes.c_long(n) for n in (tiles, 132, steps)]
    assert library.pays(*sizes, 0) == pays
    assert library.pays(*sizes, 1) == though_dear
