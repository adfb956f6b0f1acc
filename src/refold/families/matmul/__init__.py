"""Products: rows of x with a weight, and what follows on each element of the result."""

from refold.codegen.cpp import Cpp
from refold.families.family import Family
from refold.families.matmul.claim import claim, grow, read_by_epilogue
from refold.families.matmul.cuda_kernel import CudaProduct
from refold.families.matmul.kernel import FORM
from refold.families.matmul.packing import entries
from refold.families.matmul.price import charges, price
from refold.families.matmul.samples import SAMPLES
from refold.families.matmul.schedules import of_device, schedule, to_tune

FAMILY = Family(
    name="matmul",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("matmul.h", "matmul({body}, a, w, rows, width, depth)", 4, 22),
    cuda=CudaProduct,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=read_by_epilogue,
    whole=frozenset({"logsumexp"}),
    schedules=of_device,
    schedule=schedule,
    to_tune=to_tune,
    entries=entries,
)
