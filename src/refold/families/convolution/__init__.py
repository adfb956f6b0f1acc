"""Convolutions of images on a GPU, and what follows on each element of the result."""

from refold.families.convolution.claim import claim, grow
from refold.families.convolution.cuda_kernel import FORM, CudaConvolution
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
    cuda=CudaConvolution,
    charges=charges,
    price=price,
    samples=SAMPLES,
    schedules=of_device,
    schedule=schedule,
    entries=entries,
)
