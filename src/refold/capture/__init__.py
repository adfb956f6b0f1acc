"""nn.Module and example inputs -> Graph, by torch.export."""

from refold.capture.export import Captured, Field, capture
from refold.capture.program import CaptureError

__all__ = ["CaptureError", "Captured", "Field", "capture"]
