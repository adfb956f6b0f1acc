"""One launch of every kind of rows and columns kernel, for compute-sanitizer:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \
        python -m tests.gpu.sanitize_rows
    (and --tool racecheck, initcheck, synccheck)

Each tensor is an allocation of its own, so that an access beyond its end is seen.
"""

from __future__ import annotations

import torch

from .emitted import Kernel, draw, named, spaces

LAUNCHES = [
    ("Affine", [(1, 4099), (3, 13), (40, 12), (41, 13), (100, 64)]),
    ("Mixed", [(2, 3, 5, 7), (3, 2, 5, 8)]),
    ("Softmax", [(5, 1), (77, 12), (70, 31), (9, 200), (3, 1000), (2, 4099), (2, 65541)]),
    ("LayerNorm", [(77, 12), (9, 200), (3, 1028), (2, 65540)]),
    ("RowExtremes", [(77, 12), (33, 67), (5, 1001)]),
    ("Moments", [(3, 2), (100, 33), (5000, 12), (3000, 65), (9, 1028)]),
    ("ColumnsOfSlices", [(3, 6, 11), (2, 3000, 12), (70, 7, 5)]),
]


def main() -> None:
    count = 0
    for model, shapes in LAUNCHES:
        for shape in shapes:
            for e in spaces(model, len(shape)):
                values = named(e, *shape)
                Kernel(e, values, draw(e, values))()
                count += 1
    torch.cuda.synchronize()
    print(f"{count} launches")


if __name__ == "__main__":
    main()
