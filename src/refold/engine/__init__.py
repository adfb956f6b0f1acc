"""The engine: directed pass, e-graph, extraction by DAG cost, explanations."""

from refold.engine.explain import Step
from refold.engine.normalise import Ban
from refold.engine.refused import Refusal, Untouched, untouched
from refold.engine.run import Optimized, optimize

__all__ = ["Ban", "Optimized", "Refusal", "Step", "Untouched", "optimize", "untouched"]
