"""nn.Module and example inputs -> Graph, by torch.export."""

from refold.capture.captured import Captured, Field
from refold.capture.export import capture
from refold.capture.kept import kept
from refold.capture.values import CaptureError
from refold.capture.widen import Widened, is_narrow, widen

__all__ = [
    "CaptureError",
    "Captured",
    "Field",
    "Widened",
    "capture",
    "is_narrow",
    "kept",
    "widen",
]
