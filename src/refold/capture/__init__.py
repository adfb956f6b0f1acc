"""nn.Module and example inputs -> Graph, by torch.export."""

from refold.capture.arguments import Example
from refold.capture.captured import Argument, Captured, Container
from refold.capture.export import capture
from refold.capture.kept import kept, set_modes
from refold.capture.values import FREE, CaptureError
from refold.capture.widen import Widened, is_narrow, widen

__all__ = [
    "FREE",
    "Argument",
    "CaptureError",
    "Captured",
    "Container",
    "Example",
    "Widened",
    "capture",
    "is_narrow",
    "kept",
    "set_modes",
    "widen",
]
