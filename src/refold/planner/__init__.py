"""Makes plans: which family's kernel computes each node, what PyTorch computes, what is folded; and
prices them."""

from refold.planner.lower import lower
from refold.planner.make import make_plan
from refold.planner.plan_price import plan_price
from refold.planner.price import PlanPricer, floor
from refold.planner.schedules import convolutions_of, to_tune, tuned

__all__ = [
    "PlanPricer",
    "convolutions_of",
    "floor",
    "lower",
    "make_plan",
    "plan_price",
    "to_tune",
    "tuned",
]
