"""Which of our kernels a rule takes for a convolution, without timing."""

from __future__ import annotations

from math import prod

from refold.conv_class import kind_of, lacks_tensor_cores
from refold.convolve import (
    DIRECT,
    IMPLICIT,
    LEAST_FEATURES,
    ON_CPU,
    PATCHES,
    STRIPS,
    Algorithm,
    Choice,
    Convolution,
    candidates,
    tile_products,
)
from refold.flat import FLAT, places
from refold.schedule import PROCESSORS

_SLIM = 64  # features of the narrower tile
# products of an element of a transposed one up to which patches were far ahead, and of fp32 class
# (files 34 and 38, 15 and 74 of level 2; of 108 products fp32 class was level: file 20)
_TRANSPOSED, _FEW_TRANSPOSED = 256, 64
# and steps: by 5 an H100 took 2760 us for 1816 (level 1's 81), by 3 and 4 nothing was timed
_STEPS_OF_TRANSPOSED = 3
# channels up to which volumes were, whose vectors the library leaves empty (files 6, 24, 27, 48),
# and taps from which on (3 x 3 x 1: 4467 us for 2813, 3 x 5 x 7: 3511 for 9782; level 1's 59, 60)
_CHANNELS_OF_VOLUMES, _TAPS_OF_VOLUMES = 4, 27
# channels and products up to which images by steps were, in fp32: file 65 of level 2 took 1257 us
# for 2021, resnet18 2001 for 2219 by its first one, of 3 channels by 7 x 7
_CHANNELS_BY_STEPS, _DEPTH_BY_STEPS = 8, 288
# how much of a strip's tile is full at least along a row, of a transposed one's, and of features,
# where ours were measured to be ahead: files 1, 91 and 21 of KernelBench's level 2
_LEAST_OF_ROW, _LEAST_TRANSPOSED, _LEAST_FEATURES = 0.75, 0.5, 0.5
# taps of a line from which on strips were (level 1's 67: 1788 us for 2650, one long row 2221; 64:
# 2021 for 5212, and 3142)
_TAPS_OF_LINES = 3
# products of an element up to which plain arithmetic was far ahead where each channel is by itself
# (level 1's 85, of 3 x 7: 633 us for 2275)
_BY_CHANNEL = 21
# taps from which on one long row of places was ahead (1 x 1, 256 -> 64: 245 us, eager 175), and how
# much of what it computes there is at least
_TAPS_OF_FLAT, _LEAST_OF_FLAT = 4, 0.6
# channels that its stages have of fp32 class; products of an element of a transposed one by steps
# from which it was ahead there of patches (files 34 and 100 of level 2; not 3, 20, 26, 38 and 49)
_CHANNELS_OF_FLAT, _DEPTH_OF_PHASES = 32, 200
# how much of a tile's features there are at least of volumes, of which the library is slow (level
# 1's 58, of 16 features, 453 us for 7654; 70, of 24, 3205 for 9221)
_LEAST_OF_VOLUMES = 0.25


def by_rule_on_cpu(c: Convolution) -> Algorithm | None:
    """Our kernels for a CPU, where they were measured to be ahead and to lose nowhere: one or two
    features a group, few products a sum, along a line, and transposed by steps (the table in
    docs/convolution.md). Where rows are short, more is copied, or lies in empty lanes, than is
    gained.
    """
    each, wide = c.features // c.groups, c.made[-1]
    if c.output_padding is not None:
        ahead = max(c.strides) > 1 and each >= _PANEL and c.depth >= _PANEL * prod(c.strides)
    elif each <= _FEW:
        ahead = wide >= _LANES and c.depth <= 2 * _FEW_PRODUCTS
    else:
        plain = each >= _PANEL and wide >= 2 * _LANES - 4 and max(c.strides) == 1
        ahead = plain and (len(c.made) == 1 or c.depth <= _FEW_PRODUCTS)
    return ON_CPU if ahead else None


# features of a group that are few, and that fill a panel; places of a vector; products of a sum
_FEW, _PANEL, _LANES, _FEW_PRODUCTS = 2, 14, 16, 72


_IN_ORDER = ((IMPLICIT, STRIPS), (PATCHES,), (DIRECT,))


def by_rule(allowed: str, features: frozenset[str] = IMPLICIT.requires) -> Choice:
    """Our kernels, by the least of what they compute; patches, which were not timed yet, for what
    the others do not take, plain arithmetic last.

    allowed: the accuracy that PyTorch's flag allows for convolutions, "ieee" or "tf32". features:
    of the device.
    """

    def chosen(convolution: Convolution) -> Algorithm | None:
        found = candidates(convolution, kind_of(convolution, allowed), features)
        best = [[w for w in found if w.schedule.kernels in k] for k in _IN_ORDER]
        taken = next(filter(None, best), [])
        return min(taken, key=lambda w: tile_products(w.schedule, convolution), default=None)

    return chosen


def far_ahead(allowed: str, features: frozenset[str]) -> Choice:
    """Strips of rows, for convolutions like those of which they were measured to take less than
    the library's call and a kernel for what follows, transposed ones too; patches for other
    transposed ones, for volumes of few channels and for such images by steps, like those of which
    they took less than three quarters of the call's time; plain arithmetic where each channel is by
    itself; the library for the rest (docs/convolution.md)."""

    def full(size: int, tile: int, least: float = 0.75) -> bool:
        return size >= least * -(-size // tile) * tile

    def by_patches(c: Convolution) -> Algorithm | None:
        kind, each = kind_of(c, allowed), c.features // c.groups
        products = c.depth / prod(c.strides)  # of an element of the result
        if c.transposed:
            # without tensor cores the library took six times as long of 500 products (file 78)
            most = _TRANSPOSED if kind == "tf32" else _FEW_TRANSPOSED
            few = lacks_tensor_cores(c) or products <= most
            few = few and len(c.sizes) > 1 and min(c.strides) > 1
            few = few and max(c.strides) <= _STEPS_OF_TRANSPOSED
        elif max(c.strides) == 1:  # file 8 of level 2, of TF32: 1067 us, the library 1757
            some = kind == "tf32" and each <= LEAST_FEATURES and c.channels > 3
            kind = kind if some else "ieee"
            thin = c.channels <= _CHANNELS_OF_VOLUMES and prod(c.kernel) >= _TAPS_OF_VOLUMES
            few = (thin or some) and len(c.sizes) > 2
        else:
            few = c.channels <= _CHANNELS_BY_STEPS and c.depth <= _DEPTH_BY_STEPS
            few = few and len(c.sizes) == 2 and min(c.strides) > 1
        if c.groups > 1 or not few or each > 64:
            return None
        if not STRIPS.requires <= features:  # it was timed on Hopper alone
            return None
        found = [w for w in candidates(c, kind, features) if w.schedule.kernels is PATCHES]
        found = [w for w in found if full(each, w.schedule.sizes[0])]
        if c.images * prod(a.places for a in c.axes) < 4 * PROCESSORS * 128:
            return None
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    def by_channel(c: Convolution) -> Algorithm | None:
        few = c.features * c.pixels < 4 * PROCESSORS * 2048
        if few or c.depth > _BY_CHANNEL or not STRIPS.requires <= features:
            return None
        found = candidates(c, "ieee", features)
        return next((w for w in found if w.schedule.kernels is DIRECT), None)

    def by_strips(c: Convolution) -> Algorithm | None:
        kind, line = kind_of(c, allowed), len(c.kernel) == 1
        if prod(c.kernel) < (_TAPS_OF_LINES if line else 4) or c.channels // c.groups < 8:
            return None
        if line and kind != "tf32":
            return None  # was not timed
        if c.transposed and kind != "tf32":
            return None  # was not timed
        whole = _LEAST_TRANSPOSED if c.transposed else _LEAST_OF_ROW

        def fills(w: Algorithm) -> bool:
            """Are there enough rows, and do rows and features fill most of its tiles?"""
            joined = c.joined if w.schedule.tile == "joined" else 1
            # timed where four fifths of the row were full (files 93 and 5)
            least = _LEAST_OF_ROW if w.schedule.tile == "paired" else whole
            rows = c.images // joined * prod(a.places for a in c.axes[:-1])
            rows *= c.axes[-1].places // w.schedule.sizes[1] if line else 1
            along = full(c.axes[-1].places * joined, w.schedule.sizes[1], least)
            return (
                along
                and rows >= 4 * PROCESSORS
                and full(c.features // c.groups, w.schedule.sizes[0], _LEAST_FEATURES)
            )

        found = [w for w in candidates(c, kind, features) if _is_strips(w) and fills(w)]
        # of transposed ones broad tiles were slower (file 36 of level 2 on an H100: 384 us, 284)
        found = [w for w in found if not c.transposed or w.schedule.sizes[0] == _SLIM]
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    def by_flat(c: Convolution) -> Algorithm | None:
        kind, each = kind_of(c, allowed), c.features // c.groups
        phases = prod(a.phases for a in c.axes)
        if prod(c.kernel) < _TAPS_OF_FLAT or c.pixels < _LEAST_OF_FLAT * phases * places(c):
            return None
        if kind == "ieee" and not full(c.channels // c.groups, _CHANNELS_OF_FLAT):
            return None
        if phases > 1 and c.depth < _DEPTH_OF_PHASES * prod(c.strides):
            return None
        volumes = len(c.sizes) > 2 and full(c.channels // c.groups, _CHANNELS_OF_FLAT)
        least = _LEAST_OF_VOLUMES if volumes else 0.75
        found = [w for w in candidates(c, kind, features) if w.schedule.kernels is FLAT]
        found = [w for w in found if full(each, w.schedule.sizes[0], least)]
        wide = 128 if kind == "ieee" else 256
        tiles = c.groups * each * phases * places(c) // (128 * wide)
        if tiles < PROCESSORS // 2:
            return None
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    def chosen(c: Convolution) -> Algorithm | None:
        if not c.transposed and c.groups == c.channels == c.features:
            return by_channel(c)
        strips = by_strips(c)
        joined = strips is not None and strips.schedule.tile == "joined" and len(c.sizes) == 2
        # 64 -> 64 of 56 x 56: 105 us, joined strips 130. Of two phases whose rows are even 93 and 5
        # of level 2 1114 and 2167, strips 1250 and 2829; of odd rows 91 2133 and 1919
        phases = c.axes[-1].phases == 2 and c.made[-1] % 2 == 0
        if strips is None or ((joined or phases) and strips.kind == "tf32"):
            strips = by_flat(c) or strips
        return strips or by_patches(c)

    return chosen


def _is_strips(algorithm: Algorithm) -> bool:
    return algorithm.schedule.kernels is STRIPS
