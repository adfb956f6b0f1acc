"""Whether a program is functional as torch.export gives it, and is made so where that is plain.

`run_decompositions({})` would do it, and takes as long as the export.
"""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram

from refold.capture.draws import draws
from refold.capture.statistics import kept_buffers, with_results


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program without writes, every ATen op whole."""
    _write_nothing(program.graph)
    written = kept_buffers(program)
    others = (n for n in program.graph.nodes if n.op == "get_attr" or not _stays(n))
    if all(n in written for n in others):
        return with_results(program, written) if written else program
    made: ExportedProgram = program.run_decompositions({})
    return made


def _stays(node: torch.fx.Node) -> bool:
    """Is a call one that a decomposition would leave as it is, or as good?"""
    target = node.target
    if node.op != "call_function" or target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat))
    name = target.overloadpacket.__name__
    if target._schema.is_mutable or name == "lift_fresh_copy" or target.namespace != "aten":
        return False
    if name in ("batch_norm", "instance_norm"):  # running statistics are written beside
        return not node.args[5]
    return _is_left(target) or str(target) in _AS_GOOD or not target._can_decompose()


def _is_left(target: torch._ops.OpOverload) -> bool:
    """Does a decomposition by no table leave a call that is composed of others as it is?"""
    try:
        from torch._export.utils import _check_valid_to_preserve, _is_preservable_cia_op
    except ImportError:  # another PyTorch: it is asked
        return False
    return bool(_is_preservable_cia_op(target) and _check_valid_to_preserve(target))


# what a decomposition would write in other words, of which the handlers know all forms
_AS_GOOD = {
    *("aten.reshape.default", "aten.flatten.using_ints", "aten.unflatten.int", "aten.to.dtype"),
    *("aten.expand_as.default", "aten.broadcast_to.default", "aten.contiguous.default"),
    *("aten.dropout.default", "aten.chunk.default", "aten.narrow.default", "aten.mT.default"),
    *("aten.numpy_T.default", "aten.type_as.default", "aten.to.device", "aten.to.dtype_layout"),
}


def _write_nothing(graph: torch.fx.Graph) -> None:
    """Makes calls like relu_(x) calls like relu(x) where x is a new value that nothing else shows
    and that is not read later under its own name."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
            continue
        name = target.overloadpacket.__name__
        if draws(node):
            continue  # a GPU draws otherwise for one that does not write
        plain = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
        source = node.args[0] if node.args else None
        if plain is None or not isinstance(source, torch.fx.Node):
            continue
        if target._overloadname not in plain.overloads() or not _is_new(source):
            continue
        metas = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
        if len({m.dtype for m in metas if isinstance(m, torch.Tensor)}) > 1:
            continue  # a write keeps the dtype, which another value need not have
        others = [u for u in source.users if u is not node]
        if all(place[u] < place[node] and not _may_show(u) for u in others):
            node.target = getattr(plain, target._overloadname)


def _is_new(node: torch.fx.Node) -> bool:
    """Is a value in memory of its own, that nothing had before?"""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.Tensor) and not _may_show(node)


def _may_show(call: torch.fx.Node) -> bool:
    """May the result of a call lie in the memory of what it takes, or the call keep that?"""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    aliases = any(r.alias_info is not None for r in target._schema.returns)
    name = target.overloadpacket.__name__
    composed = target._can_decompose() and not _is_left(target) and name not in _NEW
    return aliases or target._schema.is_mutable or composed


_NEW = {"batch_norm", "instance_norm"}  # composed, of what gives a new value
