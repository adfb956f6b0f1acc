"""What a library takes to convert images that lie channels first, where it computes a convolution
with their channels last (docs/decisions/0028)."""

from __future__ import annotations

from math import prod

import torch

from refold.conv_class import kind_of
from refold.convolve import Convolution
from refold.devices import DeviceModel
from refold.ir import Node, hint
from refold.ir.ops import CONVOLUTIONS
from refold.plan import Plan
from refold.plan.convolution import of_node
from refold.price import Price, size_bytes

# What was measured: images and volumes, kernels of up to 3 x 3 x 3, none of them spread apart, no
# groups. One of 5 x 5 x 5 was slower with the channels last.
_PLACES = (2, 3)
_TAPS = 27
_FEW = 64  # channels, of which PyTorch lays out images at the greater rate


def lies_last(node: Node, plan: Plan, device: DeviceModel) -> bool:
    """Does the library compute a convolution of images with their channels last as well at least?
    Where it converts others, and of one tap, which is a product that it computes as images lie."""
    if device.converts is None or plan.images_last or node.op not in CONVOLUTIONS:
        return False
    stored = {plan.stored(i) for i in (node, *node.inputs[:2])}
    if len(node["strides"]) not in _PLACES or stored != {torch.float32}:
        return False
    c = of_node(node)
    plain = c.groups == 1 and set(c.dilations) == {1} and prod(c.kernel) <= _TAPS
    # in fp32 it does not compute by tensor cores, which want the channels last
    return plain and (_is_product(c) or kind_of(c, device.conv_float32) == "tf32")


def is_converted(node: Node, plan: Plan, device: DeviceModel) -> bool:
    """Is a convolution by PyTorch one whose images the library converts, as far as is known?"""
    return lies_last(node, plan, device) and not (
        _is_product(c := of_node(node)) and max(c.strides) == 1
    )


def _is_product(c: Convolution) -> bool:
    """Of so many channels cuDNN was seen to compute one tap in TF32."""
    return prod(c.kernel) == 1 and not c.transposed and min(c.channels, c.features) >= _FEW


def converted(node: Node, device: DeviceModel) -> Price:
    """What the library takes for it, beside the convolution."""
    rates = device.converts
    assert rates is not None
    given, back = 2 * size_bytes(node.inputs[0]), 2 * size_bytes(node)
    return Price(given / rates.given + back / rates.back, moved=given + back)


def laid_out(node: Node, device: DeviceModel) -> Price:
    """What PyTorch takes to lay out the image beforehand."""
    rates = device.converts
    assert rates is not None
    image = node.inputs[0]
    moved, channels = 2 * size_bytes(image), hint(image.shape[-1 - len(node["strides"])])
    rate = rates.beforehand if channels <= _FEW else rates.of_many
    return Price(device.called + moved / rate, 1, 1, moved)
