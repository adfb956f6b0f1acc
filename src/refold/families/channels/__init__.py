"""Passes over the channels of each place of an image, or over another axis before the last."""

from refold.codegen.cpp import Cpp
from refold.families.channels.claim import claim, grow, made_at_hand
from refold.families.channels.cuda_kernel import ChannelsKernel
from refold.families.channels.kernel import FORM
from refold.families.channels.price import charges, price
from refold.families.channels.samples import SAMPLES
from refold.families.channels.schedules import schedule
from refold.families.family import Family

FAMILY = Family(
    name="channels",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("channels.h", "channels({body}, outer, count, width)", 5),
    cuda=ChannelsKernel,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=made_at_hand,
    schedule=schedule,
)
