"""What emitted files run beside their kernels: real Python over PyTorch alone.

The emitter copies these files word for word, below the model's own part. Every name at the top of
a file begins with `_refold` or `_Refold`, because all share one module there. PARTS is their order;
MORE_PARTS stand before them in files for that kind of device alone.
"""

PARTS = (
    "built",
    "library",
    "settings",
    "held",
    "met",
    "reach",
    "structure",
    "rounding",
    "calls",
    "look",
    "pace",
    "stepped",
    "folds",
    "file",
    "containers",
)
MORE_PARTS = {"cpu": (), "cuda": ("nvcc", "nvrtc")}
