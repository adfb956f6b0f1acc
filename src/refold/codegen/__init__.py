"""Groups as C++ text, and nodes as PyTorch's: what the kernels of every family share."""
