"""A device as the plan of one model sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from refold.convolve import Choice
from refold.devices.device import Batches, Converts, Device
from refold.devices.table import DEVICES
from refold.ir import HALF_DTYPES


@dataclass(frozen=True)
class DeviceModel:
    """A device, and what one model asks of it.

    float32: the accuracy that products of float32 have to have, "ieee" or "tf32". dtype: what the
    model's values have in memory, by which rates are chosen. hold: seconds charged to a call for
    each byte of a folded parameter, which is kept in memory beside what it came from. convolutions:
    which of them our kernels compute; None for none. conv_float32: the accuracy that the library's
    convolutions of float32 may have, as float32.
    """

    device: Device
    float32: str = "ieee"
    dtype: torch.dtype | None = None
    hold: float = 0.0
    convolutions: Choice | None = None
    conv_float32: str = "ieee"

    @classmethod
    def of(cls, name: str) -> DeviceModel:
        """The device of that name, for products of full accuracy."""
        return cls(DEVICES[name])

    def at(self, dtype: torch.dtype | None) -> DeviceModel:
        """The same for a model whose values have that dtype in memory."""
        return replace(self, dtype=dtype)

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def product_flops(self) -> float:
        return self._rates[0]

    @property
    def folded(self) -> float:
        """How many products one with a folded weight takes."""
        return self._rates[1]

    @property
    def library(self) -> float:
        """How fast the library's products are beside ours."""
        accurate = self.float32 == "ieee" and self.dtype in (None, torch.float32)
        return self.device.library if accurate else 1.0

    @property
    def _rates(self) -> tuple[float, float]:
        own = self.device.product_flops, self.device.folded
        return own if self.dtype is None else self.device.rates.get(self.dtype, own)

    @property
    def plain_flops(self) -> float:
        return self.device.plain_flops

    @property
    def transposed(self) -> float:
        return self.device.transposed

    @property
    def gathers(self) -> bool:
        return self.device.gathers

    @property
    def bandwidth(self) -> float:
        return self.device.bandwidth

    @property
    def crosses(self) -> float:
        return self.device.crosses

    @property
    def launch(self) -> float:
        return self.device.launch

    @property
    def call(self) -> float:
        return self.device.call

    @property
    def memory(self) -> float:
        return self.device.memory

    @property
    def called(self) -> float:
        """Seconds to start one of PyTorch's functions that computes. Charges count a kernel so,
        too: what is not fused costs no less, and may be PyTorch's."""
        return self.device.launch + self.device.call

    @property
    def view(self) -> float:
        return self.device.view

    @property
    def batches(self) -> Batches | None:
        """Which batches of products of float32 our kernels compute. None of TF32: cuBLAS's read
        both sides as they are, which packing would cost."""
        return None if self.float32 == "tf32" else self.device.batches

    @property
    def converts(self) -> Converts | None:
        """How fast images are converted where the library computes with their channels last."""
        return self.device.converts if self.conv_float32 == "tf32" else None

    @property
    def quantizes(self) -> int | None:
        """From how many bytes on a value is kept in 16 bits until it is normalised, if ever."""
        return self.device.quantizes if self.float32 == "tf32" else None

    @property
    def exponentials(self) -> bool:
        """Products reduce rows by logsumexp in one pass. One whose result has 16 bits stores it
        sooner than it takes exponentials."""
        return self.device.exponentials and self.dtype not in HALF_DTYPES
