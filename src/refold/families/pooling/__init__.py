"""Pooling: means and largest elements of windows, with what is pointwise before and behind."""

from refold.codegen.cpp import Cpp
from refold.families.family import Family
from refold.families.pooling.claim import claim, grow, made_in_passing
from refold.families.pooling.cuda_kernel import PoolingKernel
from refold.families.pooling.kernel import FORM
from refold.families.pooling.price import charges, price
from refold.families.pooling.samples import SAMPLES

FAMILY = Family(
    name="pooling",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("pooling.h", "pooling({body}, planes)", 10),
    cuda=PoolingKernel,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=made_in_passing,
)
