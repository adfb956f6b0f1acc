"""Random programs of the judge's own steps, for a module of which only its structure is known.

A program is data: inputs by name, each as what draws it, and steps of `judge.worker.steps`. Names
are those of the original module. Steps that eager PyTorch does not take are left out when the
program is run, so nothing here has to know what a module allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from refold.judge.worker import structure, writes
from soak_facts import Facts, subset

Step = dict[str, Any]
WHOLE = (*writes.WAYS,)  # a whole tensor: followed at the next call on the CPU, however written
BATCHES = (6, 1, 9, 2, 0, 33)
# inputs of which no value hangs on how a sum is rounded, as that of 0/0 may
TAME = (
    *("plain", "plain", "plain", "every second column", "transposed", "a slice", "channels last"),
    *("another number", *(f"shape {i}" for i in range(6))),
)
HOW = (
    *(*TAME, "expanded", "large", "small", "far", "zeros", "alike", "one nan", "one inf"),
    *("positive", *(f"shape {i}" for i in range(6, 10))),
)

NAMES = ("x0", "x1", "x2", "x3")
NAMED = ("label", "of", "key", "name", "inputs")  # in which @ stands for the macro's number


def inputs(how: Sequence[str] = HOW) -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    """Four draws of the inputs: the first two as the module's own, the others of any kind."""
    plain = st.just({"batch": BATCHES[0], "how": "plain"})
    other = st.fixed_dictionaries(
        {"batch": st.sampled_from(BATCHES), "how": st.sampled_from(how)},
    )
    return st.fixed_dictionaries({"x0": plain, "x1": other, "x2": other, "x3": other})


@st.composite
def programs(
    draw: st.DrawFn, facts: Facts, how: Sequence[str] = HOW, longest: int = 9
) -> dict[str, Any]:
    """Inputs and steps."""
    given = draw(inputs(how))
    kinds = [_call, _call, _call, _mode, _random, _copy, _kept, _fed, _checkpoint, _refused]
    if facts.tensors:
        kinds += [_write, _write, _write, _taken]
    if facts.parameters:
        kinds += [_train, _train, _gradients, _want, _part, _dtype, _grown]
    kinds += [_item] * bool(facts.items) + [_patched] * bool(facts.patched)
    kinds += [_named] * bool(facts.names)
    if not facts.writes:
        kinds += [_threads]
    if facts.numbers:
        kinds += [_number]
    kinds += [_structure, _structure, _hook]
    steps: list[Step] = [{"do": "build", "state": draw(st.sampled_from(("", "s0", "s1")))}]
    steps += [{"do": "mode", "train": draw(st.booleans())}]
    for i in range(draw(st.integers(1, longest))):
        kind = draw(st.sampled_from(kinds))
        for step in draw(kind(facts)):
            named = {
                k: v.replace("@", str(i)) if k in NAMED and isinstance(v, str) else v
                for k, v in step.items()
                if v is not None or k == "value"
            }
            steps.append(named)
    steps += [{"do": "unhook"}, {"do": "mode", "train": False}]
    steps += [_called("last x0", "x0"), _called("last x1", "x1")]
    steps += [{"do": "state", "names": list(facts.state), "label": "last state"}]
    return {"inputs": given, "steps": steps}


def _called(label: str, name: str = "x0", **more: Any) -> Step:
    return {"do": "call", "inputs": name, "label": label, **more}


@st.composite
def _call(draw: st.DrawFn, facts: Facts) -> list[Step]:
    how = draw(st.sampled_from(("", "", "", "", "inference", "functional", "autocast")))
    words = draw(st.integers(0, len(facts.words))) if draw(st.booleans()) else 0
    return [
        _called(
            "@ call",
            draw(st.sampled_from(NAMES)),
            grad=draw(st.sampled_from((False, False, True))),
            want=draw(st.sampled_from((False, False, False, True))),
            how=how,
            words=list(facts.words[len(facts.words) - words :]),
        )
    ]


@st.composite
def _mode(draw: st.DrawFn, facts: Facts) -> list[Step]:
    path = draw(st.sampled_from(facts.parts)) if draw(st.booleans()) else ""
    name = draw(st.sampled_from(NAMES))
    return [
        {"do": "mode", "train": draw(st.booleans()), "path": path},
        _called("@ call in the mode", name),
    ]


@st.composite
def _random(draw: st.DrawFn, facts: Facts) -> list[Step]:
    return [
        {"do": "mode", "train": True},
        _called("@ seeded"),
        _called("@ unseeded", seeded=False),
        _called("@ unseeded again", draw(st.sampled_from(NAMES)), seeded=False),
        {"do": "random", "label": "@ the generator"},
    ]


@st.composite
def _copy(draw: st.DrawFn, facts: Facts) -> list[Step]:
    model = draw(st.sampled_from(("a", "b")))
    made = [
        [{"do": "clone", "to": "b"}],
        [{"do": "pickle", "model": "a"}],
        [{"do": "build", "state": "s1", "model": "b"}],
        [
            {"do": "clone", "to": "b"},
            {"do": "drop", "model": "a"},
            {"do": "clone", "to": "a", "model": "b"},
        ],
    ]
    steps = list(draw(st.sampled_from(made)))
    steps.append(_called("@ copy", draw(st.sampled_from(NAMES)), model=model))
    if facts.tensors:
        names = draw(subset(facts.tensors))
        way = draw(st.sampled_from(WHOLE))
        steps.append({"do": "write", "names": names, "how": way, "factor": 1.25, "model": model})
    steps += [_called("@ a", "x0", model="a"), _called("@ again", "x1", model=model)]
    return steps


@st.composite
def _kept(draw: st.DrawFn, facts: Facts) -> list[Step]:
    """What was given to the caller stays, and what the caller writes there is nobody else's."""
    first, second = (draw(st.sampled_from(NAMES)) for _ in range(2))
    steps: list[Step] = [
        _called("@ kept", first),
        _called("@ kept too", second),
        {"do": "look", "of": "@ kept", "label": "@ seen later"},
    ]
    if draw(st.booleans()):
        steps += [{"do": "spoil", "of": "@ kept"}, _called("@ after it was written", first)]
        steps += [{"do": "look", "of": "@ kept too", "label": "@ the other"}]
    return steps


@st.composite
def _fed(draw: st.DrawFn, facts: Facts) -> list[Step]:
    """Results that are given to the module again, as loops do."""
    return [
        _called("@ once", draw(st.sampled_from(NAMES))),
        _called("@ twice", "@ once"),
        _called("@ thrice", "@ twice"),
        {"do": "look", "of": "@ once", "label": "@ the first result"},
    ]


@st.composite
def _threads(draw: st.DrawFn, facts: Facts) -> list[Step]:
    names = draw(st.sampled_from((["x0", "x0"], ["x0", "x1"], ["x2", "x3"])))
    return [
        {"do": "mode", "train": False},
        {"do": "threads", "inputs": names, "count": 3, "label": "@ threads"},
    ]


@st.composite
def _checkpoint(draw: st.DrawFn, facts: Facts) -> list[Step]:
    name = draw(st.sampled_from(NAMES))
    state = draw(st.sampled_from(("s0", "s1", "s2")))
    return [
        {"do": "save", "name": "@"},
        {"do": "load", "state": state, "assign": draw(st.booleans())},
        _called("@ loaded", name),
        {"do": "restore", "name": "@"},
        _called("@ restored", name),
    ]


@st.composite
def _refused(draw: st.DrawFn, facts: Facts) -> list[Step]:
    return [
        {"do": "refuse", "inputs": "wrong", "label": "@ refused"},
        _called("@ after a refusal", draw(st.sampled_from(NAMES))),
    ]


@st.composite
def _write(draw: st.DrawFn, facts: Facts) -> list[Step]:
    name = draw(st.sampled_from(NAMES))
    way = draw(st.sampled_from(WHOLE))
    names = draw(subset(facts.tensors))
    factor = draw(st.sampled_from((1.25, -0.75, 0.0, 1.0009765625, 64.0)))
    if any(n.endswith("running_var") for n in names):  # a negative variance means nothing
        factor = abs(factor)
    return [
        {"do": "write", "names": names, "how": way, "factor": factor},
        _called("@ after a write", name, grad=draw(st.booleans())),
    ]


@st.composite
def _taken(draw: st.DrawFn, facts: Facts) -> list[Step]:
    names = draw(subset(facts.tensors))
    return [
        {"do": "take", "names": names, "key": "@"},
        {"do": "write", "names": names, "how": ".data = other", "factor": 0.75},
        _called("@ the average", draw(st.sampled_from(NAMES))),
        {"do": "put_back", "key": "@"},
        _called("@ its own"),
    ]


@st.composite
def _part(draw: st.DrawFn, facts: Facts) -> list[Step]:
    counted = draw(st.booleans()) or not facts.small
    name = draw(st.sampled_from(facts.parameters if counted else facts.small))
    at = draw(st.integers(0, 40))
    how = "counted" if counted else "data"
    return [
        {"do": "write_part", "name": name, "at": at, "count": 1, "how": how},
        _called("@ after a write to part"),
    ]


@st.composite
def _train(draw: st.DrawFn, facts: Facts) -> list[Step]:
    kind = draw(st.sampled_from(("adamw", "momentum", "fused")))
    names = list(facts.parameters)
    steps: list[Step] = [{"do": "optimizer", "names": names}]
    if draw(st.booleans()):
        steps.append({"do": "mode", "train": True})
    for i in range(draw(st.integers(1, 2))):
        steps += [
            {"do": "zero"},
            _called(f"@ step {i}", draw(st.sampled_from(NAMES)), grad=True),
            {"do": "backward", "of": f"@ step {i}", "scale": 2.0**-6},
            {"do": "update", "kind": kind, "rate": 2.0**-7},
        ]
        if draw(st.booleans()):
            steps.append(_called(f"@ between {i}", draw(st.sampled_from(NAMES))))
    steps += [{"do": "mode", "train": False}, _called("@ evaluated")]
    return steps


@st.composite
def _gradients(draw: st.DrawFn, facts: Facts) -> list[Step]:
    how = draw(st.sampled_from(("random", "sum", "strided", "penalty", "grad")))
    name = draw(st.sampled_from(NAMES))
    return [
        {"do": "zero"},
        _called("@ forward", name, grad=True, want=True),
        _called("@ another", "x0", grad=draw(st.booleans())),
        {"do": "backward", "of": "@ forward", "how": how},
        {"do": "grads", "names": list(facts.parameters), "label": "@ grads", "of": "@ forward"},
    ]


@st.composite
def _want(draw: st.DrawFn, facts: Facts) -> list[Step]:
    names = draw(subset(facts.parameters))
    return [
        {"do": "want", "names": names, "value": draw(st.booleans())},
        _called("@ wanted", draw(st.sampled_from(NAMES)), grad=True),
    ]


@st.composite
def _dtype(draw: st.DrawFn, facts: Facts) -> list[Step]:
    return [
        {"do": "dtype", "to": "float64"},
        _called("@ in float64", cast="float64"),
        {"do": "dtype", "to": facts.dtype},
        _called("@ in its own dtype again", draw(st.sampled_from(NAMES))),
    ]


@st.composite
def _grown(draw: st.DrawFn, facts: Facts) -> list[Step]:
    one = {"do": "parametrize", "name": draw(st.sampled_from(facts.parameters))}
    return [
        {**one, "on": True},
        _called("@ parametrized", draw(st.sampled_from(NAMES))),
        {**one, "on": False},
        _called("@ as before"),
    ]


@st.composite
def _number(draw: st.DrawFn, facts: Facts) -> list[Step]:
    path, name, value = draw(st.sampled_from(facts.numbers))
    step = {"do": "attribute", "path": path, "name": name, "value": value}
    return [step, _called("@ another number", draw(st.sampled_from(NAMES)))]


@st.composite
def _item(draw: st.DrawFn, facts: Facts) -> list[Step]:
    path, name, key, value = draw(st.sampled_from(facts.items))
    step = {"do": "item", "path": path, "name": name, "key": key, "value": value}
    return [step, _called("@ another item", draw(st.sampled_from(NAMES)))]


@st.composite
def _patched(draw: st.DrawFn, facts: Facts) -> list[Step]:
    step = {"do": "patch", "path": draw(st.sampled_from(facts.patched))}
    return [step, _called("@ patched", draw(st.sampled_from(NAMES)))]


@st.composite
def _named(draw: st.DrawFn, facts: Facts) -> list[Step]:
    name, key, value = draw(st.sampled_from(facts.names))
    step = {"do": "name_of_file", "name": name, "key": key, "value": value}
    return [step, _called("@ another value in the file", draw(st.sampled_from(NAMES)))]


@st.composite
def _structure(draw: st.DrawFn, facts: Facts) -> list[Step]:
    path, other = (draw(st.sampled_from(facts.parts)) for _ in range(2))
    how = draw(st.sampled_from(tuple(structure.WAYS)))
    step = {"do": "restructure", "path": path, "how": how, "other": other}
    return [
        step,
        _called("@ restructured", draw(st.sampled_from(NAMES))),
        _called("@ restructured again", grad=draw(st.booleans())),
    ]


@st.composite
def _hook(draw: st.DrawFn, facts: Facts) -> list[Step]:
    kind = draw(st.sampled_from(("pre", "forward", "backward")))
    return [
        {"do": "hook", "kind": kind, "replace": draw(st.booleans()) and kind != "backward"},
        _called("@ hooked", draw(st.sampled_from(NAMES)), grad=kind == "backward"),
        {"do": "counted", "label": "@ counted"},
        {"do": "unhook"},
        _called("@ unhooked"),
    ]
