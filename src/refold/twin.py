"""The fast twin of a module in memory: the same attributes under a class that tries kernels first.

A twin and its original share one `__dict__`: modes, parameters and settings changed through either
are changed in both. All twins of modules of one class are of one class. What the kernels need lies
beside a dict that each module has, and is no part of the state that is copied or pickled. A twin
has no slot that the original's class has not, so that its class may be changed as any module's.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

import torch

from refold.runtime.calls import _REFOLD_FOR_ALL, _REFOLD_PASSING
from refold.runtime.look import _refold_look_meanwhile
from refold.subclass import Program, blank, program, subclass

M = TypeVar("M", bound=torch.nn.Module)


class Graphs(Protocol):
    """What computes forward by compiled graphs. run: with a twin. why: why the last call took the
    original forward, or None. text: all that runs. fresh: the same for another twin, which knows no
    graph yet."""

    why: str | None

    @property
    def text(self) -> str: ...

    def run(self, fast: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def fresh(self) -> Graphs: ...


class Caches(dict[str, Any]):
    """What the modes of one of a twin's programs have folded; the other programs' beside it."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = weakref.ref(state)

    def everywhere(self) -> list[Any]:
        """The caches of all programs."""
        state = self._state()
        held = [self] if state is None else [caches for _, caches in state.programs]
        return [cache for caches in held for cache in list(caches.values())]


@dataclass(eq=False)
class State:
    """What a twin holds beside its attributes.

    programs: with the caches of each, the last that fitted first. reason: why the last call took
    the original forward, or None. grow: makes a program for a call that none fits, or says
    why there can be none, or gives None.
    graphs: in the place of programs, what has each graph of forward compiled by itself.
    measured: of each mode the times of the baselines over the kernels', by the baseline's name.
    kept: of a mode, train or eval, that no program serves, why. otherwise: in the place of the
    original forward, called with a twin, the programs that refused, and the call's arguments. twin:
    whose state it is, which nothing in it may hold. kind: its class, when it was called last.
    """

    programs: list[tuple[Program, dict[str, Any]]] = field(default_factory=list)
    reason: str | None = None
    original: weakref.ref[torch.nn.Module] | None = None
    grow: Any = None
    graphs: Graphs | None = None
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    otherwise: Callable[..., Any] | None = None
    twin: weakref.ref[torch.nn.Module] | None = None
    kind: type | None = None

    def __post_init__(self) -> None:
        self.programs = [(made, Caches(self)) for made, _ in self.programs]


# Of each twin that lives, by its id. It holds none: a state may reach its twin, by what attributes
# hold.
_STATES: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()


class _Held(dict[int, State]):
    """The states of a module's twins, which it alone holds. What is copied or pickled has none."""

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


_EMPTY = _Held()  # of twins whose attributes a copy or a pickle has yet to bring


def _give(fast: torch.nn.Module, state: State) -> State:
    """Make a state that of a twin, for as long as this lives."""
    held = _EMPTY
    if "_state_dict_hooks" in vars(fast):  # a dict of each module that may have attributes
        place = vars(fast._state_dict_hooks)
        held = place.get("_refold_held") or _Held()
        place["_refold_held"] = held
    key, states = id(fast), weakref.WeakValueDictionary({0: state})

    def forget(_: object) -> None:
        if key in held and held[key] is states.get(0):
            del held[key]

    state.twin = weakref.ref(fast, forget)
    held[key] = _STATES[key] = state
    return state


def _begin(fast: torch.nn.Module, state: State) -> None:
    """Before the first call, and where the class has changed: it may have other functions that
    forward calls."""
    state.kind = type(fast)
    if _EMPTY.pop(id(fast), None) is not None:
        _give(fast, state)
    _refresh(fast)


def bind(texts: str | Sequence[str], module: torch.nn.Module) -> torch.nn.Module:
    """A twin of `module` that runs emitted texts, the first that fits a call."""
    cls = original_class(type(module))
    kind = fast_class(cls)
    fast = blank(kind)
    object.__setattr__(fast, "__dict__", module.__dict__)
    programs = [program(t, cls) for t in ([texts] if isinstance(texts, str) else texts)]
    held = weakref.ref(original(module))
    _give(fast, State([(p, {}) for p in programs], original=held))
    for made in programs:
        kind._refold_known.add(made)  # type: ignore[attr-defined]
        made.namespace._refold_file.reached(fast)
    return fast


def bind_graphs(graphs: Graphs, module: torch.nn.Module) -> torch.nn.Module:
    """A twin of `module` whose graphs are compiled one by one."""
    kind = fast_class(original_class(type(module)))
    fast = blank(kind)
    object.__setattr__(fast, "__dict__", module.__dict__)
    _give(fast, State(original=weakref.ref(original(module)), graphs=graphs))
    return fast


def is_twin(module: object) -> bool:
    return "_refold_twin" in vars(type(module))


def runs_programs(module: object) -> bool:
    """True of a twin, and of one whose class was made of a twin's since: fully_shard and
    parametrizations make such classes."""
    return hasattr(type(module), "_refold_twin")


def original_class(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """The class that a twin's class stands for; any other class itself."""
    return cls.__mro__[1] if "_refold_twin" in vars(cls) else cls


def original(fast: M) -> M:
    """The module that a twin was made of, or one of its class with the very same attributes."""
    if not is_twin(fast):
        return fast
    held = state_of(fast).original
    found = held() if held is not None else None
    if found is not None and found.__dict__ is fast.__dict__:
        return cast(M, found)
    cls = original_class(type(fast))
    module = cast(M, blank(cls))
    object.__setattr__(module, "__dict__", fast.__dict__)
    return module


def state_of(fast: torch.nn.Module) -> State:
    """A twin's state; one that came by a constructor or a copy tries what its class knows."""
    state = _STATES.get(id(fast))
    if state is None:
        known = type(fast)._refold_known  # type: ignore[attr-defined]
        state = _give(fast, State([(p, {}) for p in known]))
    return state


_CLASSES: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def fast_class(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """The class of all twins of modules of a class."""
    held = _CLASSES.get(cls)
    made = held() if held is not None else None
    if made is None:
        made = _made(cls)
        _CLASSES[cls] = weakref.ref(made)
    return made


def _made(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
    compiling, states = torch.compiler.is_compiling, _STATES

    @functools.wraps(cls.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return cls.forward(self, *args, **kwargs)
        state = states.get(id(self)) or state_of(self)
        if state.kind is not type(self):
            _begin(self, state)
        if state.graphs is not None:
            found = state.graphs.run(self, args, kwargs)
            state.reason = state.graphs.why
            return found
        refusals = []
        for at, (tried, caches) in enumerate(state.programs):
            try:
                found = tried.attempt(self, caches, *args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                return cls.forward(self, *args, **kwargs)  # a wrong call: the error is its own
            if type(found) is not tried.refusal:
                if at:
                    state.programs.insert(0, state.programs.pop(at))
                state.reason = None
                return found
            refusals.append((tried, str(found)))
            if found in _REFOLD_FOR_ALL:
                break
        return _refused(state, cls, refusals, self, args, kwargs)

    names: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "_refold_made": True,
        "_refold_twin": True,
        "_refold_known": weakref.WeakSet(),
        "forward": forward,
        "refold_refresh": _refresh,
        "refold_report": _report,
        "refold_source": property(_source),
        "refold_measured": property(lambda self: state_of(self).measured),
        "__reduce_ex__": _reduce,
        "__prepare_scriptable__": original,
    }
    return subclass(cls, cls.__name__, names)


def _refused(
    state: State,
    cls: type[torch.nn.Module],
    refusals: list[tuple[Program, str]],
    self: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """No program takes this call: one may be made for it; else the original forward runs."""
    grow = None if _REFOLD_PASSING.intersection(why for _, why in refusals) else state.grow
    made = grow and grow(self, [tried for tried, _ in refusals], args, kwargs)
    if isinstance(made, Program):
        caches = Caches(state)
        state.programs.insert(0, (made, caches))
        found = made.attempt(self, caches, *args, **kwargs)
        if type(found) is not made.refusal:
            state.reason = None
            return found
    if isinstance(made, str):  # why there are no kernels says more than what these are not for
        refusals = [(tried, made) for tried, _ in refusals]
    reasons = dict.fromkeys(why for _, why in refusals if why)
    why_kept = state.kept.get("train" if self.training else "eval")
    kept = "the original forward is kept in this mode" + (f": {why_kept}" if why_kept else "")
    state.reason = "; ".join(reasons) or kept
    if reasons and getattr(state.grow, "spent", False):
        state.reason += "; no more kernels are made by themselves: call refold.optimize again"
    for tried, why in [r for r in refusals[:1] if r[1]]:
        tried.namespace._refold_warn_fallback(why)
    for tried, held in state.programs:
        _refold_look_meanwhile(held, tried.namespace._refold_file)
    try:
        if state.otherwise is not None:
            return state.otherwise(self, [tried for tried, _ in refusals], args, kwargs)
        return cls.forward(self, *args, **kwargs)
    except Exception:
        if isinstance(made, str) and state.grow is not None:
            state.grow.raised(args, kwargs)
        raise


def _source(self: torch.nn.Module) -> str:
    state = state_of(self)
    return state.programs[0][0].text if state.graphs is None else state.graphs.text


def _report(self: torch.nn.Module) -> str:
    """What was rewritten and by which rules, how fast each mode was beside what, and whether the
    last call took the kernels."""
    state, lines = state_of(self), []
    for line in _source(self).splitlines():
        if not line.startswith("#") or line.startswith("# What refold wrote"):
            break
        lines.append(line[2:])
    for mode, ratios in state.measured.items():
        lines += [f"{mode}: {ratio:.2f} times as fast as {name}" for name, ratio in ratios.items()]
    held = sum(folded_bytes(cache) for _, _, cache in caches_of(self))
    lines.append(f"Folded parameters take {held:,} bytes now.")
    lines.append(
        f"The last call took the original forward: {state.reason}." if state.reason else ""
    )
    return "\n".join(lines).strip()


def _refresh(self: torch.nn.Module) -> None:
    """Forget the folded parameters: the next call computes them anew."""
    for _, caches in state_of(self).programs:
        caches.clear()


def _reduce(self: torch.nn.Module, protocol: int) -> tuple[Any, ...]:
    cls, held = original_class(type(self)), state_of(self)
    texts = tuple(p.text for p, _ in held.programs)
    made = None if held.graphs is None else held.graphs.fresh()
    rest = texts, held.grow, made, held.kept, held.otherwise
    if is_twin(self) and _reduces(cls) != _reduces(torch.nn.Module):
        return _rebound, (original(self), *rest)  # which its class has a way of its own to make
    plain: Any = getattr(object, "__getstate__", None)
    own: Any = getattr(cls, "__getstate__", plain)
    state = dict(self.__dict__) if own is plain else own(self)
    return _rebuilt, (cls, *rest), state


def _reduces(cls: type[torch.nn.Module]) -> tuple[Any, Any]:
    return cls.__reduce_ex__, cls.__reduce__


def _rebuilt(cls: type[torch.nn.Module], texts: tuple[str, ...], *rest: Any) -> torch.nn.Module:
    """An empty twin, whose state a copy or a pickle brings."""
    made_of = next((c for c in cls.__mro__ if "_refold_twin" in vars(c)), None)
    kind = fast_class(cls) if made_of is None else cls
    return _given(blank(kind), original_class(made_of or cls), texts, *rest)


def _rebound(module: torch.nn.Module, texts: tuple[str, ...], *rest: Any) -> torch.nn.Module:
    """A twin of a module that a copy or a pickle brought."""
    cls = original_class(type(module))
    fast = blank(fast_class(cls))
    object.__setattr__(fast, "__dict__", module.__dict__)
    return _given(fast, cls, texts, *rest)


def _given(
    fast: M,
    cls: type[torch.nn.Module],
    texts: tuple[str, ...],
    grow: Any = None,
    graphs: Graphs | None = None,
    kept: Mapping[str, str] | None = None,
    otherwise: Callable[..., Any] | None = None,
) -> M:
    programs = [program(text, cls) for text in texts]
    for one in programs:
        type(fast)._refold_known.add(one)  # type: ignore[attr-defined]
    state = State([(p, {}) for p in programs], grow=grow, graphs=graphs, kept=dict(kept or {}))
    state.otherwise = otherwise
    _give(fast, state)
    return fast


def namespaces(fast: torch.nn.Module) -> list[ModuleType]:
    """The emitted modules that a module runs: a twin's programs, or the file of its class."""
    if runs_programs(fast):
        return [made.namespace for made, _ in state_of(fast).programs]
    return [sys.modules[type(fast).__module__]]


def caches_of(fast: torch.nn.Module) -> Iterator[tuple[ModuleType, str, Any]]:
    """(emitted module, the mode's name, what the mode has folded) of all that a module holds."""
    if runs_programs(fast):
        held = [caches for _, caches in state_of(fast).programs]
    else:
        held = [fast.__dict__.get("_refold_caches") or {}]
    for namespace, caches in zip(namespaces(fast), held, strict=True):
        yield from ((namespace, name, cache) for name, cache in list(caches.items()))


def folded_bytes(cache: Any) -> int:
    """Bytes of what a mode has folded, copied or packed, beside the parameters themselves."""
    own = {t.data_ptr() for t in cache.sources}
    return sum(v.numel() * v.element_size() for v in cache.values if v.data_ptr() not in own)
