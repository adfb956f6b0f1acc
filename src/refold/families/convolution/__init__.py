"""Convolutions of images, and what follows on each element of the result."""

from refold.codegen.cpp import Cpp
from refold.families.convolution.claim import claim, grow, takes_statistics
from refold.families.convolution.cuda_kernel import CudaConvolution
from refold.families.convolution.images import lays_out
from refold.families.convolution.kernel import FORM
from refold.families.convolution.packing import entries
from refold.families.convolution.price import charges, price
from refold.families.convolution.samples import SAMPLES
from refold.families.convolution.schedules import of_device, schedule
from refold.families.family import Family

FAMILY = Family(
    name="convolution",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp(
        "convolution.h",
        "convolution({body}, a, w, count, image_deep, image_high, image_wide, width)",
        20,
    ),
    cuda=CudaConvolution,
    charges=charges,
    price=price,
    samples=SAMPLES,
    schedules=of_device,
    schedule=schedule,
    entries=entries,
    whole=frozenset({"mean", "var"}),
    takes_statistics=takes_statistics,
    lays_out=lays_out,
)
