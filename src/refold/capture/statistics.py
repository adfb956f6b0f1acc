"""Running statistics and counters that a program writes, as results: what batch norms in train mode
and `counter.add_(1)` write to buffers.

`run_decompositions({})` would find it, and takes as long as the export, of all calls anew.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument

_aten = torch.ops.aten
_STATISTICS = (3, 4)  # where a batch norm has its running mean and its running variance
Written = dict[torch.fx.Node, tuple[torch.fx.Node, ...]]


def kept_buffers(program: ExportedProgram) -> Written:
    """The calls that write to buffers, and to which, where each of these is written once and is
    read by nothing else, so that its old value is what the call reads, and its new one a result.
    Nothing where another of the module's tensors lies in the same memory."""
    buffers = _buffers(program)
    found: Written = {}
    for node in program.graph.nodes:
        places = _written_by(node)
        once = all(p in buffers and list(p.users) == [node] for p in places)
        uses = [i for i in node.all_input_nodes if i in places]
        if places and once and len(uses) == len(set(places)) == len(places):
            found[node] = places
    return found if _apart(program, [buffers[p] for ps in found.values() for p in ps]) else {}


def with_results(program: ExportedProgram, written: Written) -> ExportedProgram:
    """The program, changed in place: what it writes to buffers it returns, as torch.export says
    it of a program without writes."""
    buffers = _buffers(program)
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    for node, places in written.items():
        with program.graph.inserting_before(node):
            made = list(_with_results(program.graph, node))
        values |= dict(zip(places, made[1:], strict=True))
        node.replace_all_uses_with(made[0])
        program.graph.erase_node(node)
    ordered = [(values[p], name) for p, name in buffers.items() if p in values]
    final = next(iter(program.graph.find_nodes(op="output")))
    final.args = ((*(value for value, _ in ordered), *final.args[0]),)
    program.graph_signature.output_specs[:0] = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(value.name), name)
        for value, name in ordered
    ]
    return program


def _buffers(program: ExportedProgram) -> dict[torch.fx.Node, str]:
    """The placeholders of buffers, and their names."""
    places = program.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    pairs = zip(places, specs, strict=True)
    return {n: str(s.target) for n, s in pairs if s.kind == InputKind.BUFFER}


def _written_by(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """What a call writes to, of the two kinds of calls that are taken."""
    args = node.args
    if node.target is _aten.batch_norm.default and args[5]:
        found = tuple(args[i] for i in _STATISTICS)
    elif node.target is _aten.add_.Tensor and not node.users and not node.kwargs:
        found = args[:1] if isinstance(args[1], int) and not isinstance(args[1], bool) else ()
    else:
        return ()
    places = tuple(p for p in found if isinstance(p, torch.fx.Node))
    return places if len(places) == len(found) else ()


def _with_results(graph: torch.fx.Graph, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """A call that does not write: what it gives, and what it would have written."""
    if node.target is _aten.add_.Tensor:
        made = graph.call_function(_aten.add.Tensor, node.args)
        made.meta = node.meta
        yield from (made, made)
        return
    own = _aten._native_batch_norm_legit_functional.default
    norm = graph.call_function(own, node.args[:8])
    statistics = [place.meta["val"] for place in _written_by(node)]
    results = (node.meta["val"], *statistics, *statistics)
    norm.meta = {**node.meta, "val": results}
    for i in (0, *_STATISTICS):
        part = graph.call_function(operator.getitem, (norm, i))
        part.meta = {**node.meta, "val": results[i]}
        yield part


def _apart(program: ExportedProgram, names: list[str]) -> bool:
    """Does no other tensor of the module lie in the memory of one of these buffers?"""
    held = {**program.constants, **program.state_dict}
    tensors = [(k, v) for k, v in held.items() if isinstance(v, torch.Tensor)]
    if any(v.layout is not torch.strided for _, v in tensors):
        return False
    memory = [(k, v.untyped_storage()._cdata) for k, v in tensors]
    count = collections.Counter(place for _, place in memory)
    known = dict(memory)
    return all(name in known and count[known[name]] == 1 for name in names)
