"""Makes plans: which family's kernel computes each node, what PyTorch computes, what is folded."""

from refold.planner.lower import lower
from refold.planner.make import make_plan
from refold.planner.schedules import to_tune, tuned

__all__ = ["lower", "make_plan", "to_tune", "tuned"]
