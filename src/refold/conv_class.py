"""How accurately PyTorch's library computes a convolution on a GPU, where its flag allows TF32.

The flag, which is not the one for products, says what the library may do. What it does hangs on the
sizes. What is written without measuring is accurate to fp32 wherever the library may be, and where
fewer images than the example come, the original computes them (`least_places`). Measured on an H100
with cuDNN 9.19, errors against float64 of kernels of 3 to 9 taps a side and 1 to 128 images:
docs/decisions/0029-which-class-of-accuracy.md.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

# of a sum's products, from how many on the library is taken to use TF32 (72 of 8 channels: fp32;
# 576 of 64: TF32), and of a transposed volume's taps a side up to how many (file 78 of level 2)
LEAST_TF32, _MOST_TAPS_TF32 = 512, 4
# a transposed one's places of the images times its features, from which on it does
_LEAST_TRANSPOSED = 4608 * 64
# channels of a group from which on it does so of any images, and places from which on of fewer
_MANY, _FEW = 60, 32
_PLACES_OF_SOME, _PLACES_OF_FEW = 1024, 32768
# features and taps of transposed images by steps of one; taps of images of many channels beyond
# which it does so from as many places on (64 to 64 channels by 7 x 7: 6272 and not 3136)
_FEWEST, _TAPS_OF_ANY, _TAPS_OF_MANY, _PLACES_BY_MANY = 64, 9, 25, 6272
# of volumes that it computes in TF32 at any size: channels at least, features
_FEW_CHANNELS, _FEW_FEATURES = 4, 16
# places of all images from which on it does so of fewer products a sum, channels at least, features
# of ordinary ones; of transposed ones: features of any, features by 3 x 3
_PLACES_OF_LARGE, _CHANNELS_OF_LARGE, _FEATURES_OF_LARGE = 1 << 18, 16, (64, 128)
_TRANSPOSED_LARGE, _BY_NINE_TAPS = (128,), (32, 64, 128)


class Convolution(Protocol):
    """What is asked of a convolution: `convolve.Convolution`."""

    @property
    def images(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def features(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def kernel(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dilations(self) -> tuple[int, ...]: ...
    @property
    def depth(self) -> int: ...
    @property
    def transposed(self) -> bool: ...


def kind_of(convolution: Convolution, allowed: str) -> str:
    """The accuracy of what the library is taken to compute, "ieee" or "tf32"."""
    if lacks_tensor_cores(convolution) or _is_transposed_by_many(convolution):
        return "ieee"
    some = _is_spread(convolution) or _is_of_few_features(convolution)
    some = some or _is_large(convolution)
    if convolution.depth < LEAST_TF32 and not some:
        return "ieee"
    if convolution.images * prod(convolution.sizes) < least_places(convolution):
        return "ieee"
    return allowed


def _is_large(c: Convolution) -> bool:
    """Is it one of few products a sum that the library computes in TF32 where images are large?
    Lines or images of one group, by steps of one."""
    plain = c.groups == 1 and max(c.strides) == 1 and max(c.dilations) == 1 and len(c.sizes) <= 2
    if not plain or c.depth >= LEAST_TF32 or c.channels < _CHANNELS_OF_LARGE:
        return False
    if not c.transposed:
        return c.features in _FEATURES_OF_LARGE
    by_nine = set(c.kernel) == {3} and len(c.sizes) == 2
    return c.features in (_BY_NINE_TAPS if by_nine else _TRANSPOSED_LARGE)


def _is_spread(c: Convolution) -> bool:
    """Is it a transposed one of volumes, by steps and by more than two taps a side? The library
    computes it in TF32 however few channels and places there are."""
    return c.transposed and len(c.sizes) > 2 and min(c.strides) > 1 and min(c.kernel) > 2


def _is_of_few_features(c: Convolution) -> bool:
    """Is it one of volumes of four channels or more to sixteen features by three taps a side? The
    library computes it in TF32 however few places there are; to more features, of large volumes, it
    does not."""
    shape = not c.transposed and len(c.sizes) > 2 and c.groups == 1 and set(c.kernel) == {3}
    plain = max(c.strides) == 1 and max(c.dilations) == 1
    return shape and plain and c.channels >= _FEW_CHANNELS and c.features == _FEW_FEATURES


def _is_transposed_by_many(c: Convolution) -> bool:
    """Is it a transposed one of images by steps of one, of many taps to few features? The library
    computes it in TF32 for few places and in fp32 for many (64 to 64 channels by 5 x 5)."""
    few = c.features <= _FEWEST and prod(c.kernel) > _TAPS_OF_ANY
    return c.transposed and len(c.sizes) == 2 and max(c.strides) == 1 and few


def lacks_tensor_cores(c: Convolution) -> bool:
    """Does the library compute without tensor cores? Transposed volumes by more than four taps a
    side, however many products there are."""
    return c.transposed and len(c.sizes) > 2 and max(c.kernel) > _MOST_TAPS_TF32


def least_places(c: Convolution) -> int:
    """From how many places of all its images on the library is taken to use TF32, of a convolution
    of such channels, features and kernels; 0 where it does for any."""
    if _is_large(c):
        return _PLACES_OF_LARGE
    if c.transposed:
        return 0 if _is_spread(c) else -(-_LEAST_TRANSPOSED // c.features)
    each = c.channels // c.groups
    if len(c.sizes) != 2:
        return 0
    if each >= _MANY:
        return _PLACES_BY_MANY if prod(c.kernel) > _TAPS_OF_MANY else 0
    return _PLACES_OF_SOME if each >= _FEW else _PLACES_OF_FEW
