"""The typed graph: sizes, nodes, THE op table, printing."""

from refold.ir.dim import Dim, Sym, hint, numel
from refold.ir.graph import Graph, Output, render
from refold.ir.node import Attr, Node, as_scalar, leaf, make
from refold.ir.op import Kind, Op
from refold.ir.ops import HALF_DTYPES, OPS

__all__ = [
    "HALF_DTYPES",
    "OPS",
    "Attr",
    "Dim",
    "Graph",
    "Kind",
    "Node",
    "Op",
    "Output",
    "Sym",
    "as_scalar",
    "hint",
    "leaf",
    "make",
    "numel",
    "render",
]
