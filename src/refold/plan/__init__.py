"""Graph -> Plan: which nodes become one kernel, which run as PyTorch calls, which are folded."""

from refold.plan.lower import lower
from refold.plan.memory import Storage
from refold.plan.plan import Call, Fold, Group, Plan, Step, Template
from refold.plan.planner import make_plan

__all__ = ["Call", "Fold", "Group", "Plan", "Step", "Storage", "Template", "lower", "make_plan"]
