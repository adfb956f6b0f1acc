"""What a plan is: its kernels, its calls of PyTorch, its folds; `planner/` makes one."""

from refold.plan.memory import Storage
from refold.plan.plan import ExternCall, Fold, Group, Plan, Step

__all__ = ["ExternCall", "Fold", "Group", "Plan", "Step", "Storage"]
