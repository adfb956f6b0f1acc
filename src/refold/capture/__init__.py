"""nn.Module and example inputs -> Graph, by torch.export."""

from refold.capture.export import Captured, CaptureError, Field, capture

__all__ = ["CaptureError", "Captured", "Field", "capture"]
