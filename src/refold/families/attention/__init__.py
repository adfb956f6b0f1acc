"""Attention of float32: softmax(q k^T scale + mask) v of each head, without scores in memory."""

from refold.families.attention.claim import claim, grow
from refold.families.attention.cuda_kernel import AttentionKernel
from refold.families.attention.kernel import FORM
from refold.families.attention.price import charges, price
from refold.families.attention.samples import SAMPLES
from refold.families.family import Family

FAMILY = Family(
    name="attention",
    claim=claim,
    grow=grow,
    form=FORM,
    cuda=AttentionKernel,
    charges=charges,
    price=price,
    samples=SAMPLES,
)
