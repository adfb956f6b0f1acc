"""In a life: what steps see of modules beside their outputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from refold.judge.worker import structure
from refold.judge.worker.leaves import copied, digest, load, registered, tensors
from refold.judge.worker.values import scaled, wide

Tree = Any
OUTPUT, STATE, GRADS, FACT, LEAST = "output", "state", "grads", "fact", "at least"
MOST = "at most"
GENERATOR = "the generator after"  # what labels of it begin with, where nothing may draw
SWITCHES = "what is left changed"  # the label of what a whole life left so
WRITTEN = "what calls write to"  # likewise: inputs, the mode, hooks; and memory that outputs share


def _obeyed(module: nn.Module) -> dict[str, bool]:
    """Whether what is said to the module reaches all of its parts and parameters."""
    reached: set[int] = set()
    given = {"apply": module.apply(lambda part: reached.add(id(part))) is module}
    given["what apply() reaches"] = reached == {id(part) for part in module.modules()}
    live = [p for p in module.parameters() if p.requires_grad]
    module.requires_grad_(False)
    given["frozen by requires_grad_(False)"] = not any(p.requires_grad for p in live)
    for parameter in live:
        parameter.requires_grad_(True)
        parameter.grad = torch.zeros_like(parameter[:0]).sum().expand(parameter.shape)
    module.zero_grad()
    given["cleared by zero_grad()"] = all(p.grad is None for p in live)
    for parameter in live:
        parameter.grad = torch.ones_like(parameter)
    module.zero_grad(set_to_none=False)
    zeros = [p.grad is not None and not bool(p.grad.any()) for p in live]
    given["zeros by zero_grad(set_to_none=False)"] = all(zeros)
    for parameter in live:
        parameter.grad = None
    return given


def _fields(tree: Tree) -> list[str]:
    if isinstance(tree, tuple):
        found = [name for name in getattr(tree, "_fields", ()) if hasattr(tree, name)]
    elif isinstance(tree, dict):
        found = [k for k in tree if isinstance(k, str) and hasattr(tree, k) and not hasattr({}, k)]
    else:
        found = []
    inner = tree.values() if isinstance(tree, dict) else tree
    parts = inner if isinstance(tree, dict | list | tuple) else ()
    return found + [name for part in parts for name in _fields(part)]


class Missing(LookupError):
    """The module has no part or tensor of that name, which the reference has."""


class Looks:
    """The steps of `steps.Interpreter` that look; what is seen goes to ``seen`` under a label."""

    models: dict[str, nn.Module]
    states: Mapping[str, dict[str, torch.Tensor]]
    outputs: dict[str, Tree]
    given: dict[str, Tree]
    counts: dict[str, int]
    handles: list[Any]
    given_to_hooks: list[tuple[torch.Tensor, torch.Tensor]]
    seen: list[list[Any]]
    identities: dict[str, dict[str, weakref.ref[torch.Tensor]]]
    device: torch.device
    wide: bool
    _given: Callable[..., list[Any]]

    def look(self, of: str, label: str) -> None:
        """See the outputs of an earlier call once more: later calls must leave them alone."""
        self._see(label, OUTPUT, copied(self.outputs[of]))

    def numbers(self, of: str, label: str) -> None:
        """See which values of an earlier call's outputs are finite."""
        self._see(label, OUTPUT, [torch.isfinite(t) for t in tensors(self.outputs[of])])

    def state(self, names: list[str], label: str, model: str = "a") -> None:
        """See parameters and buffers as modules keep them."""
        held = registered(self.models[model])
        self._see(label, STATE, {n: copied(held[n]) for n in names if n in held})

    def retyped(self, label: str, model: str, of: str = "a") -> None:
        """See which parameters and buffers have another type than those of another module."""
        mine, theirs = (registered(self.models[name]) for name in (model, of))
        others = [n for n, t in theirs.items() if n in mine and mine[n].dtype != t.dtype]
        self._see(label, MOST, others)

    def random(self, label: str) -> None:
        """See where PyTorch's generator is."""
        self._see(label, FACT, digest(torch.get_rng_state()))

    def identity(self, names: list[str], label: str, model: str = "a") -> None:
        """See whether tensors are the objects that they were, and want gradients."""
        mine = self.identities[model]
        now = {n: self._tensor(n, model) for n in names}
        facts = {n: [n in mine and mine[n]() is t, bool(t.requires_grad)] for n, t in now.items()}
        self._see(label, FACT, facts)

    def attached(self, names: list[str], label: str, model: str = "a") -> None:
        """See whether buffers hang on a graph of autograd's."""
        held = registered(self.models[model])
        self._see(label, FACT, {n: bool(held[n].requires_grad) for n in names if n in held})

    def wants(self, of: str, label: str) -> None:
        """See whether an output of a call wants gradients."""
        self._see(label, FACT, any(t.requires_grad for t in tensors(self.outputs[of])))

    def laid(self, of: str, label: str) -> None:
        """See the strides of a call's outputs, of axes that have several elements."""
        found = [
            [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]
            for t in tensors(self.outputs[of])
            if t.layout is torch.strided
        ]
        self._see(label, FACT, found)

    def fields(self, of: str, label: str) -> None:
        """By which names parts of a call's outputs may be had: of named tuples, and of dicts whose
        keys are attributes."""
        self._see(label, LEAST, _fields(self.outputs[of]))

    def variables(self, names: list[str], label: str, model: str = "a") -> None:
        """See whether ``state_dict(keep_vars=True)`` gives the tensors themselves."""
        held, found = registered(self.models[model]), self.models[model].state_dict(keep_vars=True)
        self._see(label, FACT, {n: found.get(n) is held.get(n) for n in names})

    def listen(self, names: list[str], model: str = "a") -> None:
        """Hooks on parameters, which count."""

        def counted(name: str) -> Callable[[torch.Tensor], None]:
            def count(_: torch.Tensor) -> None:
                self.counts[name] += 1

            return count

        for name in names:
            self.counts[name] = 0
            tensor: Any = self._tensor(name, model)
            self.handles.append(tensor.register_hook(counted(name)))

    def kept_by_hooks(self, label: str) -> None:
        """See whether any of what hooks were given is other than when it was taken down."""
        changed = any(not torch.equal(copied(now), then) for now, then in self.given_to_hooks)
        self._see(label, FACT, changed)

    def remember_hooks(self) -> None:
        """Take down what hooks were given, as it is now: parts may go on in place in a call."""
        self.given_to_hooks = [(now, copied(now)) for now, _ in self.given_to_hooks]

    def nonzero(self, of: str, label: str) -> None:
        """See whether any output of a call is not zero."""
        self._see(label, FACT, any(bool((t != 0).any()) for t in tensors(self.outputs[of])))

    def reached(self, of: str, label: str) -> None:
        """See which inputs of a call have gradients that are not all zero; others may, too."""
        found = enumerate(tensors(self.given[of]))
        held = [i for i, t in found if t.grad is not None and bool((t.grad != 0).any())]
        self._see(label, LEAST, held)

    def nans(self, names: list[str], label: str, model: str = "a") -> None:
        """See which gradients of parameters have NaN or infinity among them; others may, too."""
        grads = {n: self._tensor(n, model).grad for n in names}
        found = [n for n, g in grads.items() if g is not None and not bool(torch.isfinite(g).all())]
        self._see(label, LEAST, found)

    def finite(self, names: list[str], label: str, of: str, model: str = "a") -> None:
        """See which gradients of parameters, and of the inputs of a call, are all finite; others
        may be, too."""
        grads = {n: self._tensor(n, model).grad for n in names}
        grads |= {f"input {i}": t.grad for i, t in enumerate(tensors(self.given[of]))}
        found = [n for n, g in grads.items() if g is None or bool(torch.isfinite(g).all())]
        self._see(label, LEAST, found)

    def methods(self, label: str, model: str = "a") -> None:
        """See what the module's own methods say: whether those that give the module back do, what
        `training` is then, and whether lists of tensors are those that have names."""
        module, was = self.models[model], self.models[model].training
        given: dict[str, Any] = {}
        for name in ("eval", "train"):
            given[name] = getattr(module, name)() is module
            given[f"training after {name}()"] = module.training
        module.train(was)
        given["to"] = module.to(self.device) is module
        given["requires_grad_"] = module.requires_grad_() is module
        given |= _obeyed(module)
        for name in ("parameters", "buffers"):
            listed = {id(t) for t in getattr(module, name)()}
            given[name] = listed == {id(t) for _, t in getattr(module, f"named_{name}")()}
        self._see(label, FACT, given)

    def embed(self, state: str, label: str, model: str = "a") -> None:
        """Put the module into another one: see the names that it has there, and load a state."""
        outer = nn.Sequential(nn.Identity(), self.models[model])
        names = {
            "state": sorted(outer.state_dict()),
            "parameters": sorted(n for n, _ in outer.named_parameters(remove_duplicate=False)),
        }
        self._see(label, FACT, names)
        given = self._cast(self.states[state])
        load(outer, {f"1.{k}": v.clone() for k, v in given.items()})

    def hook(self, kind: str, replace: bool = False, model: str = "a", path: str = "") -> None:
        """A hook on the module, or on a part, that counts its calls, or replaces what it sees."""
        module = self._part(path, model)
        self.counts.setdefault(kind, 0)

        def count(*_: Any) -> Any:
            self.counts[kind] += 1

        def pre(_: nn.Module, given: Any) -> Any:
            self.counts[kind] += 1
            return tuple(scaled(v) for v in given) if replace else None

        def post(_: nn.Module, given: Any, output: Any) -> Any:
            self.counts[kind] += 1
            return scaled(output) if replace else None

        def wordy(_: nn.Module, given: Any, words: Any, *output: Any) -> None:
            self.counts[kind] += 1

        def of_all(called: nn.Module, given: Any, output: Any) -> None:
            self.counts[kind] += called is module

        def keep(_: nn.Module, given: Any, output: Any) -> None:
            self.given_to_hooks += [(t, t) for t in tensors(output)]

        def within(_: nn.Module, given: Any, output: Any) -> None:
            if not self.counts[kind]:  # else this call is the one within
                self.counts[kind] += 1
                self.models[model](*self._given("x1"))

        register: dict[str, Callable[[], Any]] = {
            "pre": lambda: module.register_forward_pre_hook(pre),
            "forward": lambda: module.register_forward_hook(post),
            "keeping": lambda: module.register_forward_hook(keep),
            "calling": lambda: module.register_forward_hook(within),
            "backward": lambda: module.register_full_backward_hook(count),
            "backward pre": lambda: module.register_full_backward_pre_hook(count),
            "forward with keywords": lambda: module.register_forward_hook(wordy, with_kwargs=True),
            "pre with keywords": lambda: module.register_forward_pre_hook(wordy, with_kwargs=True),
            "of all modules": lambda: nn.modules.module.register_module_forward_hook(of_all),
        }
        self.handles.append(register[kind]())

    def patch(self, path: str, on: bool, model: str = "a") -> None:
        """Give a part a forward of its own, as monkey patches do; or take it away again."""
        part = self._part(path, model)
        if on:
            structure.WAYS["forward patched"](self.models[model], path, "")
        else:
            del part.forward

    def unhook(self) -> None:
        """Remove all hooks."""
        while self.handles:
            self.handles.pop().remove()

    def counted(self, label: str) -> None:
        """See how often hooks were called."""
        self._see(label, FACT, dict(self.counts))

    # -- helpers -------------------------------------------------------------------------------

    def _part(self, path: str, model: str) -> nn.Module:
        try:
            return self.models[model].get_submodule(path)
        except AttributeError as error:
            raise Missing(f"no part {path}") from error

    def _identify(self, model: str) -> None:
        found = registered(self.models[model]).items()
        self.identities[model] = {n: weakref.ref(t) for n, t in found}

    def _see(self, label: str, kind: str, tree: Tree) -> None:
        self.seen.append([label, kind, tree])

    def _tensor(self, name: str, model: str) -> torch.Tensor:
        found = registered(self.models[model]).get(name)
        if found is None:
            raise Missing(f"no tensor {name}")
        return found

    def _cast(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {k: wide(v) for k, v in state.items()} if self.wide else state


def hooks(module: nn.Module) -> int:
    """How many hooks a module has, its parts' left out."""
    held = (v for k, v in vars(module).items() if k.endswith("_hooks"))
    return sum(len(v) for v in held if isinstance(v, dict))


def shared(output: Any, given: Any, module: nn.Module) -> list[str]:
    """What of an output lies where something else does: its elements, inputs, the module's."""
    found: set[str] = set()
    held = {"memory of inputs": tensors(given), "memory of the module": registered(module).values()}
    try:
        places = {k: {t.untyped_storage().data_ptr() for t in v} - {0} for k, v in held.items()}
        for t in tensors(output):
            if t.numel() and any(
                step == 0 < size - 1 for size, step in zip(t.shape, t.stride(), strict=True)
            ):
                found.add("elements in one place")
            found |= {k for k, v in places.items() if t.untyped_storage().data_ptr() in v}
    except (RuntimeError, NotImplementedError):  # tensors without memory
        pass
    return sorted(found)
