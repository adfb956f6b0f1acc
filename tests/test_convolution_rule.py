"""Which convolutions our kernels compute by default on a GPU: those like what they were timed to be
ahead of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refold.conv_class import kind_of
from refold.conv_rules import far_ahead
from refold.convolve import Convolution
from refold.devices import DEVICES
from refold.flat import FLAT
from test_convolutions import HOPPER, TARGET

ONE = Convolution(128, 64, 128, 1, (128, 128), (126, 126), (3, 3), (1, 1), (0, 0), (1, 1))
LARGER = Convolution(
    *(128, 64, 64, 1, (128, 128), (256, 256), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
)
EACH = Convolution(16, 64, 64, 64, (512, 512), (510, 510), (3, 3), (1, 1), (0, 0), (1, 1))
VOLUMES = Convolution(
    *(128, 3, 16, 1, (16, 64, 64), (14, 62, 62), (3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1))
)
LARGER_VOLUMES = replace(
    VOLUMES, channels=16, features=32, strides=(2, 2, 2), output_padding=(0, 0, 0)
)
LINE = Convolution(32, 64, 128, 1, (131072,), (131070,), (3,), (1,), (0,), (1,))
FEW_OF_VOLUMES = Convolution(
    *(16, 32, 16, 1, (16, 32, 64), (18, 36, 70), (3, 5, 7), (1, 1, 1), (2, 4, 6), (1, 1, 1))
)
FLAT_BROAD = ("tf32", "broad", "flat")
# a convolution, what PyTorch's flag allows -> class, tile and kernels, or the library
FAR_AHEAD = {
    "64 channels": (ONE, "tf32", ("tf32", "broad")),
    "8 channels": (replace(ONE, channels=8, features=64), "tf32", ("ieee", "slim")),
    # kernels and rows as hi and lo do not fit where strips have them
    "fp32 of 64 channels": (ONE, "ieee", ("ieee", "broad", "flat")),
    "3 channels": (replace(ONE, channels=3), "tf32", None),
    "narrow rows": (replace(ONE, sizes=(68, 68), made=(66, 66)), "tf32", FLAT_BROAD),
    "short rows": (replace(ONE, sizes=(58, 58), made=(56, 56)), "tf32", FLAT_BROAD),
    "shorter rows": (replace(ONE, sizes=(30, 30), made=(28, 28)), "tf32", FLAT_BROAD),
    "rows that fill half of what is joined": (
        replace(ONE, sizes=(38, 38), made=(36, 36)),
        "tf32",
        FLAT_BROAD,
    ),
    "few rows": (replace(ONE, images=2), "tf32", FLAT_BROAD),
    "lines of three taps": (LINE, "tf32", ("tf32", "broad")),
    "lines of three taps in fp32": (LINE, "ieee", None),
    "lines of two taps": (replace(LINE, kernel=(2,), made=(131071,)), "tf32", None),
    "a short line": (replace(LINE, images=1, sizes=(4096,), made=(4094,)), "tf32", None),
    "each channel by itself, 3 x 7": (
        replace(EACH, kernel=(3, 7), made=(510, 506)),
        "tf32",
        ("ieee", "columns"),
    ),
    "each channel by itself, 5 x 5": (replace(EACH, kernel=(5, 5), made=(508, 508)), "tf32", None),
    "volumes of 16 features": (FEW_OF_VOLUMES, "tf32", ("tf32", "slim", "flat")),
    "volumes of 8 features": (replace(FEW_OF_VOLUMES, features=8), "tf32", None),
    "flat volumes of 3 channels": (
        replace(VOLUMES, features=64, kernel=(3, 3, 1), made=(14, 62, 64)),
        "tf32",
        None,
    ),
    "few places": (replace(ONE, images=1), "tf32", None),
    "a step of two": (replace(ONE, strides=(2, 2), made=(126, 126)), "tf32", None),
    "half a tile of features": (replace(ONE, features=32), "tf32", ("tf32", "slim")),
    "a quarter of a tile of features": (replace(ONE, features=16), "tf32", None),
    "many channels": (replace(ONE, channels=512), "tf32", FLAT_BROAD),
    "many channels, small images": (
        replace(ONE, channels=512, features=512, sizes=(7, 7), made=(7, 7), paddings=(1, 1)),
        "tf32",
        FLAT_BROAD,
    ),
    "many channels, no more than is padded": (
        replace(
            ONE,
            channels=512,
            features=512,
            sizes=(2, 2),
            made=(2, 2),
            paddings=(2, 2),
            dilations=(2, 2),
        ),
        "tf32",
        None,
    ),
    "many channels in fp32": (
        replace(ONE, channels=512),
        "ieee",
        ("ieee", "broad", "flat"),
    ),
    "few places of many channels in fp32": (
        replace(
            ONE, images=64, channels=512, features=512, sizes=(7, 7), made=(7, 7), paddings=(1, 1)
        ),
        "ieee",
        ("ieee", "broad", "flat"),
    ),
    "fp32 of 32 channels, short rows": (
        replace(ONE, channels=32, features=64, sizes=(58, 58), made=(56, 56)),
        "ieee",
        ("ieee", "joined"),
    ),
    "fp32 of channels that fill no stage": (replace(ONE, channels=65), "ieee", None),
    "transposed by steps of one, many channels": (
        replace(
            ONE,
            channels=64,
            kernel=(5, 5),
            paddings=(1, 1),
            sizes=(32, 32),
            made=(34, 34),
            output_padding=(0, 0),
        ),
        "tf32",
        FLAT_BROAD,
    ),
    "one tap": (replace(ONE, kernel=(1, 1)), "tf32", None),
    "each channel by itself": (EACH, "tf32", ("ieee", "columns")),
    "each channel by itself, few places": (replace(EACH, images=1, made=(50, 50)), "tf32", None),
    "transposed": (LARGER, "tf32", ("tf32", "slim")),
    "transposed in fp32": (LARGER, "ieee", None),
    "transposed of 3 channels": (
        replace(LARGER, channels=3, features=16),
        "tf32",
        ("ieee", "features16"),
    ),
    "transposed by a larger kernel": (
        replace(LARGER, kernel=(4, 4)),
        "tf32",
        ("tf32", "slim", "flat"),
    ),
    "transposed, rows of odd length": (
        replace(LARGER, kernel=(4, 4), made=(257, 257)),
        "tf32",
        ("tf32", "paired"),
    ),
    "transposed, short rows": (replace(LARGER, made=(100, 100)), "tf32", ("tf32", "features64")),
    "transposed, rows that fill two tiles": (
        replace(LARGER, made=(130, 130)),
        "tf32",
        ("tf32", "paired"),
    ),
    "transposed by steps of one": (replace(LARGER, strides=(1, 1)), "tf32", ("tf32", "slim")),
    "transposed, few places": (replace(LARGER, images=1), "tf32", None),
    "volumes of 3 channels": (VOLUMES, "tf32", ("ieee", "features16")),
    "volumes of 3 channels, many taps": (
        replace(VOLUMES, kernel=(6, 6, 6)),
        "tf32",
        ("ieee", "features16"),
    ),
    "volumes of 3 channels by steps": (replace(VOLUMES, strides=(2, 2, 2)), "tf32", None),
    "volumes of 16 channels, few features": (
        replace(VOLUMES, channels=16),
        "tf32",
        ("tf32", "features16"),
    ),
    "the same, spread apart": (replace(VOLUMES, channels=16, dilations=(2, 2, 2)), "tf32", None),
    "the same in fp32": (replace(VOLUMES, channels=16), "ieee", None),
    "volumes, short rows": (
        replace(VOLUMES, channels=8, features=64),
        "tf32",
        ("ieee", "joined"),
    ),
    "volumes": (
        replace(VOLUMES, channels=32, features=64, sizes=(16, 66, 130), made=(14, 64, 128)),
        "tf32",
        ("tf32", "slim"),
    ),
    "volumes of more channels than fit": (
        replace(VOLUMES, channels=64, features=64),
        "tf32",
        ("tf32", "slim", "flat"),
    ),
    "transposed volumes of many products": (
        replace(LARGER_VOLUMES, channels=64, features=128, made=(31, 127, 127)),
        "tf32",
        FLAT_BROAD,
    ),
    "transposed volumes of few products": (LARGER_VOLUMES, "tf32", ("tf32", "features32")),
    "8 channels by steps of four": (
        replace(ONE, channels=8, features=64, kernel=(6, 6), strides=(4, 4), made=(32, 32)),
        "tf32",
        ("ieee", "features64"),
    ),
    "3 channels by 7 x 7, steps of two": (
        replace(ONE, channels=3, features=64, kernel=(7, 7), strides=(2, 2), made=(64, 64)),
        "tf32",
        ("ieee", "features64"),
    ),
    "transposed volumes of 108 products in fp32": (
        replace(LARGER_VOLUMES, channels=32, features=64),
        "ieee",
        None,
    ),
    "transposed by steps of five": (
        replace(LARGER, channels=8, strides=(5, 5), made=(638, 638)),
        "ieee",
        None,
    ),
    "transposed volumes by 5 taps": (
        replace(LARGER_VOLUMES, channels=16, features=64, kernel=(5, 5, 5)),
        "tf32",
        ("ieee", "features64"),
    ),
    "transposed volumes by 4 taps": (
        replace(LARGER_VOLUMES, channels=32, features=64, kernel=(4, 4, 4)),
        "tf32",
        ("tf32", "features64"),
    ),
}


@pytest.mark.parametrize("case", FAR_AHEAD)
def test_by_default_ours_compute_what_they_were_measured_to_be_ahead_of(case: str) -> None:
    c, allowed, expected = FAR_AHEAD[case]
    way = far_ahead(allowed, HOPPER)(c)
    flat = () if way is None or way.schedule.kernels is not FLAT else ("flat",)
    assert (None if way is None else (way.kind, way.schedule.tile, *flat)) == expected
    assert far_ahead(allowed, DEVICES[TARGET].features)(c) is None  # an A100 has no wgmma


@pytest.mark.parametrize(
    "made, split",
    [
        ((1022, 1022), True),  # 9 tiles for 8
        ((131070,), True),
        ((1024, 1024), False),  # whole sectors
        ((3, 1020), True),  # sectors of every other row
        ((254, 254), False),  # 3 tiles for 2
        ((126, 126), False),  # one
    ],
)
def test_rows_whose_sectors_are_split(made: tuple[int, ...], split: bool) -> None:
    ones = (1,) * len(made)
    c = replace(ONE, sizes=made, made=made, kernel=ones, strides=ones, dilations=ones)
    assert replace(c, paddings=(0,) * len(made)).has_split_sectors == split


# what the library was measured to compute on an H100 where TF32 is allowed: docs/decisions/0029
COMPUTES = {
    "3 x 3 of 64 channels, one small image": (
        replace(ONE, images=1, sizes=(3, 3), made=(3, 3)),
        "tf32",
    ),
    "5 x 5 of 32 channels": (replace(ONE, channels=32, kernel=(5, 5)), "tf32"),
    "5 x 5 of 32 channels, small images": (
        replace(ONE, images=4, channels=32, kernel=(5, 5), sizes=(8, 8), made=(8, 8)),
        "ieee",
    ),
    "7 x 7 of 16 channels, middling images": (
        replace(ONE, channels=16, kernel=(7, 7), sizes=(12, 12), made=(12, 12)),
        "ieee",
    ),
    "7 x 7 of 64 channels": (
        replace(ONE, features=64, images=8, kernel=(7, 7), sizes=(28, 28), made=(28, 28)),
        "tf32",
    ),
    "7 x 7 of 64 channels, small images": (
        replace(ONE, features=64, images=4, kernel=(7, 7), sizes=(28, 28), made=(28, 28)),
        "ieee",
    ),
    "transposed by 5 x 5 and steps of one, many places": (
        replace(LARGER, kernel=(5, 5), strides=(1, 1), images=64, sizes=(32, 32)),
        "ieee",
    ),
    "the same to twice the features": (
        replace(LARGER, features=128, kernel=(5, 5), strides=(1, 1), images=3, sizes=(32, 32)),
        "tf32",
    ),
    "transposed": (LARGER, "tf32"),
    "transposed, small images": (replace(LARGER, images=4, sizes=(24, 24)), "ieee"),
    "transposed, half the features": (
        replace(LARGER, features=32, images=1, sizes=(64, 64)),
        "ieee",
    ),
    "transposed, twice the features": (
        replace(LARGER, features=128, images=4, sizes=(24, 24)),
        "tf32",
    ),
    "volumes of one channel by steps of two": (
        replace(LARGER_VOLUMES, images=1, channels=1, features=16, sizes=(3, 3, 3)),
        "tf32",
    ),
    "volumes by two taps and steps of two": (
        replace(LARGER_VOLUMES, images=1, channels=64, kernel=(2, 2, 2), sizes=(8, 8, 8)),
        "ieee",
    ),
    "volumes by steps of two": (
        replace(LARGER_VOLUMES, images=1, channels=32, features=64, sizes=(2, 2, 2)),
        "tf32",
    ),
    "16 channels, large images": (
        replace(ONE, images=16, channels=16, sizes=(128, 128), made=(126, 126)),
        "tf32",
    ),
    "16 channels": (replace(ONE, images=8, channels=16), "ieee"),
    "16 channels to 32 features, large images": (
        replace(ONE, images=16, channels=16, features=32),
        "ieee",
    ),
    "8 channels, large images": (replace(ONE, channels=8), "ieee"),
    "a long line": (LINE, "tf32"),
    "a line": (replace(LINE, images=1, channels=32), "ieee"),
    "32 channels transposed by 3 x 3 and steps of one, large images": (
        replace(LARGER, channels=32, features=32, strides=(1, 1), made=(130, 130)),
        "tf32",
    ),
    "the same by 1 x 3": (
        replace(LARGER, channels=32, features=32, strides=(1, 1), kernel=(1, 3), made=(128, 130)),
        "ieee",
    ),
    "transposed volumes, few places": (
        replace(
            LARGER_VOLUMES, images=1, channels=64, features=64, strides=(1, 1, 1), sizes=(8, 8, 8)
        ),
        "ieee",
    ),
}


@pytest.mark.parametrize("case", COMPUTES)
def test_a_class_of_accuracy_is_what_the_library_was_measured_to_compute(case: str) -> None:
    c, expected = COMPUTES[case]
    assert (kind_of(c, "tf32"), kind_of(c, "ieee")) == (expected, "ieee")
