"""`torch.compile(model, backend="refold")`: graphs that Dynamo captures, through refold's engine.

Inductor's front end does all that is no kernel: AOTAutograd, decompositions, the partition into
forward and backward, layouts, random numbers. What it would compile of each graph is asked of us
first; what we do not take is Inductor's.
"""

from refold.backend.compile import refold
from refold.backend.options import OPTIONS, BackendOptions
from refold.backend.report import GraphReport, Report, explain, reports

__all__ = ["OPTIONS", "BackendOptions", "GraphReport", "Report", "explain", "refold", "reports"]
