"""refold: a PyTorch module in, a drop-in module that computes the same function much faster out."""

__version__ = "0.1.0"
