"""The interpreter of lives: programs of steps as data, run on a module and never reloaded between.

The parent runs a life on the reference, as it is and in float64; a worker runs the same steps on
the candidate. It is one module for all three, so what is compared is what was done alike.

A step is a dict: ``do`` names a method of `Interpreter`, the rest are its arguments. What a step
observes goes to `Interpreter.seen` under a label. See `verdict.life` for what is made of it.
"""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from refold.contract import seed_everything
from refold.judge.worker import backward, structure, writes
from refold.judge.worker.leaves import copied, digest, registered, tensors
from refold.judge.worker.values import fresh, scaled, wide

Tree = Any
Step = dict[str, Any]
OUTPUT, STATE, GRADS, FACT = "output", "state", "grads", "fact"


class Missing(LookupError):
    """The module has no part or tensor of that name, which the reference has."""


class Interpreter:
    """One run of one life.

    make: builds a module as the constructor leaves it. states: by name. inputs: by name, lists of
    arguments. wide: the module and everything that it is given is in float64. parallel: threads
    are threads; else their calls come one after another.
    """

    def __init__(
        self,
        make: Callable[..., nn.Module],
        states: Mapping[str, dict[str, torch.Tensor]],
        inputs: Mapping[str, list[Any]],
        seed: int,
        device: torch.device,
        wide: bool = False,
        parallel: bool = True,
        on_build: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.make, self.states, self.inputs = make, states, inputs
        self.seed, self.device, self.wide, self.parallel = seed, device, wide, parallel
        self.on_build = on_build
        self.models: dict[str, nn.Module] = {}
        self.held: dict[str, dict[str, torch.Tensor]] = {}  # parameters as an optimizer holds them
        self.moments: dict[Any, Any] = {}
        self.saved: dict[str, Any] = {}
        self.outputs: dict[str, Tree] = {}
        self.given: dict[str, Tree] = {}
        self.counts: dict[str, int] = {}
        self.handles: list[Any] = []
        self.seen: list[list[Any]] = []
        self.identities: dict[str, dict[str, int]] = {}

    def run(self, steps: Sequence[Step]) -> dict[str, Any]:
        """What was seen, as ``[label, kind, tree]``, and what a step raised, after which none
        follow: its number, type and message."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of hooks on outputs that are no tensors
            raised = self._all(steps)
        for handle in self.handles:
            handle.remove()
        return {"seen": self.seen, "raised": raised}

    def _all(self, steps: Sequence[Step]) -> dict[str, Any] | None:
        for number, step in enumerate(steps):
            arguments = dict(step)
            try:
                getattr(self, arguments.pop("do"))(**arguments)
            except (Exception, SystemExit) as error:
                return {
                    "step": number,
                    "type": type(error).__name__,
                    "message": " ".join(str(error).split())[:300],
                }
        return None

    # -- modules -------------------------------------------------------------------------------

    def build(self, state: str, model: str = "a", init: list[Any] | None = None) -> None:
        """A new module, in a state; ``init``: of other arguments of the constructor."""
        made = self.make() if init is None else self.make(init)
        if self.on_build is not None:
            self.on_build(made)
        self.models[model] = made
        if state:
            made.load_state_dict(self._cast(self.states[state]), strict=True)
        self._identify(model)

    def load(self, state: str, model: str = "a", assign: bool = False) -> None:
        """``load_state_dict``."""
        given = {k: v.clone().to(self.device) for k, v in self._cast(self.states[state]).items()}
        self.models[model].load_state_dict(given, strict=True, assign=assign)

    def save(self, name: str, model: str = "a") -> None:
        """Keep a copy of the state, as a checkpoint does."""
        self.saved[name] = {k: v.clone() for k, v in self.models[model].state_dict().items()}

    def restore(self, name: str, model: str = "a") -> None:
        """Load what was saved."""
        self.models[model].load_state_dict(self.saved[name], strict=True)

    def clone(self, to: str, model: str = "a") -> None:
        """``copy.deepcopy``."""
        self.models[to] = copy.deepcopy(self.models[model])
        self._identify(to)

    def drop(self, model: str) -> None:
        """Forget a module, its outputs and its memory."""
        del self.models[model]

    def pickle(self, model: str = "a") -> None:
        """``torch.save`` and ``torch.load`` of the whole module, in this process."""
        file = io.BytesIO()
        torch.save(self.models[model], file)
        file.seek(0)
        # what this process wrote a moment ago: the parent reads only the reference so
        self.models[model] = torch.load(file, weights_only=False)
        self._identify(model)

    def mode(self, train: bool, path: str = "", model: str = "a") -> None:
        """``train()`` or ``eval()`` of the module or of a part."""
        self._part(path, model).train(train)

    def attribute(self, path: str, name: str, value: Any, model: str = "a") -> None:
        """Set a plain attribute of a part."""
        part = self._part(path, model)
        if not hasattr(part, name):
            raise Missing(f"no {path}.{name}")
        setattr(part, name, value)

    def restructure(self, path: str, how: str, other: str = "", model: str = "a") -> None:
        """Change what the module is made of, at a part, in one of the ways of `structure`."""
        self._part(path, model)
        structure.WAYS[how](self.models[model], path, other)

    def dtype(self, to: str, model: str = "a") -> None:
        """``.to(dtype)``; the float64 run stays what it is."""
        if not self.wide:
            self.models[model].to(getattr(torch, to))

    # -- calls ---------------------------------------------------------------------------------

    def call(
        self,
        inputs: str,
        label: str,
        model: str = "a",
        grad: bool = False,
        want: bool = False,
        seeded: bool = True,
        how: str = "",
        words: Sequence[str] = (),
        cast: str = "",
        see: bool = True,
    ) -> None:
        """One forward. ``grad``: with autograd on; ``want``: the inputs want gradients; ``how``:
        ``inference``, ``functional`` (with larger parameters that are not the module's own),
        ``autocast``; ``words``: names of the last arguments, which are given by keyword."""
        given = self._given(inputs, want, cast)
        self.given[label] = given
        if seeded:
            seed_everything(self.seed)
        module = self.models[model]
        first = len(given) - len(words)
        with torch.inference_mode(how == "inference"), torch.set_grad_enabled(grad):
            named = dict(zip(words, given[first:], strict=True))
            if how == "functional":
                larger = {n: p.detach() * 1.5 for n, p in module.named_parameters()}
                output = torch.func.functional_call(module, larger, tuple(given))
            elif how == "autocast":
                with torch.autocast(self.device.type, torch.bfloat16, enabled=not self.wide):
                    output = module(*given)
            else:
                output = module(*given[:first], **named)
        self.outputs[label] = output
        if see:
            self._see(label, OUTPUT, copied(output))

    def spoil(self, of: str) -> None:
        """Write to the outputs of a call, which are the caller's."""
        with torch.no_grad():
            for tensor in tensors(self.outputs[of]):
                tensor.fill_(7)

    def look(self, of: str, label: str) -> None:
        """See the outputs of an earlier call once more: later calls must leave them alone."""
        self._see(label, OUTPUT, copied(self.outputs[of]))

    def calls(self, inputs: list[str], count: int, model: str = "a", grad: bool = False) -> None:
        """Many forwards, one input after another; nothing is looked at."""
        with torch.set_grad_enabled(grad):
            for i in range(count):
                seed_everything(self.seed + i)
                self.models[model](*self._given(inputs[i % len(inputs)]))

    def refuse(self, inputs: str, model: str = "a", label: str = "") -> None:
        """A call that the reference refuses; with a label, whether it was refused is seen."""
        refused = False
        try:
            with torch.no_grad():
                self.models[model](*self._given(inputs))
        except Exception:
            refused = True
        if label:
            self._see(label, FACT, refused)

    def threads(self, inputs: list[str], count: int, label: str, model: str = "a") -> None:
        """``count`` calls in each of several threads, each on inputs of its own."""
        module = self.models[model]
        found: dict[int, list[Tree]] = {i: [] for i in range(len(inputs))}
        wrong: list[BaseException] = []
        given = {i: self._given(name) for i, name in enumerate(inputs)}
        together = threading.Barrier(len(inputs))

        def work(i: int) -> None:
            try:
                if self.parallel:
                    together.wait(20)
                with torch.no_grad():
                    for _ in range(count):
                        found[i].append(copied(module(*given[i])))
            except Exception as error:
                wrong.append(error)

        workers = [threading.Thread(target=work, args=(i,)) for i in found]
        for thread in workers:
            thread.start() if self.parallel else thread.run()
        for thread in workers if self.parallel else ():
            thread.join()
        if wrong:
            raise wrong[0]
        for i, outputs in found.items():
            for j, output in enumerate(outputs):
                self._see(f"{label}, thread {i}, call {j}", OUTPUT, output)

    # -- weights -------------------------------------------------------------------------------

    def write(self, names: list[str], how: str, factor: float, model: str = "a") -> None:
        """Multiply tensors by a factor, in one of the ways of `writes`."""
        writes.WAYS[how](self.models[model], {n: self._tensor(n, model) for n in names}, factor)

    def write_part(self, name: str, at: int, count: int, how: str, model: str = "a") -> None:
        """Change some consecutive elements of a tensor."""
        tensor = self._tensor(name, model)
        flat = (tensor.data if how == "data" else tensor.detach()).reshape(-1)
        if flat.data_ptr() != tensor.data_ptr():
            raise Missing(f"{name} lies in no one piece")
        with torch.no_grad():
            flat[at : at + count] = flat[at : at + count] * 1.5 + 0.5

    def take(self, names: list[str], key: str, model: str = "a") -> None:
        """Keep the present ``data`` of tensors, as an EMA swap does."""
        self.saved[key] = {n: self._tensor(n, model).data for n in names}

    def put_back(self, key: str, model: str = "a") -> None:
        """Give back what was taken."""
        for name, data in self.saved[key].items():
            self._tensor(name, model).data = data

    def want(self, names: list[str], value: bool, model: str = "a") -> None:
        """``requires_grad_``."""
        for name in names:
            self._tensor(name, model).requires_grad_(value)

    def parametrize(self, name: str, on: bool, model: str = "a") -> None:
        """A parametrization of one parameter (one and a half times it), registered or removed."""
        from torch.nn.utils import parametrize

        path, _, last = name.rpartition(".")
        part = self._part(path, model)
        if on:
            parametrize.register_parametrization(part, last, writes.Larger())
        else:
            parametrize.remove_parametrizations(part, last, leave_parametrized=False)

    def optimizer(self, names: list[str], model: str = "a") -> None:
        """Hold the parameters, as an optimizer does that is built now."""
        self.held[model] = {n: self._tensor(n, model) for n in names}

    def update(self, kind: str, rate: float, model: str = "a") -> None:
        """One step of an optimizer on what it holds."""
        writes.step(kind, rate, self.held[model], self.moments, heard=self.parallel)

    # -- gradients -----------------------------------------------------------------------------

    def backward(self, of: str, how: str = "random", **options: Any) -> None:
        """A backward of the outputs of a call; see `backward.run`."""
        backward.run(self.outputs[of], self.given[of], how, self.seed, **options)

    def zero(self, model: str = "a") -> None:
        """``zero_grad()``."""
        self.models[model].zero_grad(set_to_none=True)

    def grads(self, names: list[str], label: str, of: str = "", model: str = "a") -> None:
        """See the gradients of parameters, and of the inputs of a call."""
        found: dict[str, Any] = {n: self._tensor(n, model).grad for n in names}
        if of:
            found |= {f"input {i}": t.grad for i, t in enumerate(tensors(self.given[of]))}
        self._see(label, GRADS, {k: None if v is None else copied(v) for k, v in found.items()})

    # -- observations --------------------------------------------------------------------------

    def state(self, names: list[str], label: str, model: str = "a") -> None:
        """See parameters and buffers as modules keep them."""
        held = registered(self.models[model])
        self._see(label, STATE, {n: copied(held[n]) for n in names if n in held})

    def random(self, label: str) -> None:
        """See where PyTorch's generator is."""
        self._see(label, FACT, digest(torch.get_rng_state()))

    def identity(self, names: list[str], label: str, model: str = "a") -> None:
        """See whether parameters are the objects that they were, and want gradients."""
        mine = self.identities[model]
        now = {n: self._tensor(n, model) for n in names}
        facts = {n: [id(t) == mine.get(n), bool(t.requires_grad)] for n, t in now.items()}
        self._see(label, FACT, facts)

    def hook(self, kind: str, replace: bool = False, model: str = "a") -> None:
        """A hook on the whole module that counts its calls, or replaces what it sees."""
        module = self.models[model]
        self.counts.setdefault(kind, 0)

        def count(*_: Any) -> Any:
            self.counts[kind] += 1

        def pre(_: nn.Module, given: Any) -> Any:
            self.counts[kind] += 1
            return tuple(scaled(v) for v in given) if replace else None

        def post(_: nn.Module, given: Any, output: Any) -> Any:
            self.counts[kind] += 1
            return scaled(output) if replace else None

        register: dict[str, Callable[[], Any]] = {
            "pre": lambda: module.register_forward_pre_hook(pre),
            "forward": lambda: module.register_forward_hook(post),
            "backward": lambda: module.register_full_backward_hook(count),
        }
        self.handles.append(register[kind]())

    def unhook(self) -> None:
        """Remove all hooks."""
        while self.handles:
            self.handles.pop().remove()

    def counted(self, label: str) -> None:
        """See how often hooks were called."""
        self._see(label, FACT, dict(self.counts))

    # -- helpers -------------------------------------------------------------------------------

    def _see(self, label: str, kind: str, tree: Tree) -> None:
        self.seen.append([label, kind, tree])

    def _identify(self, model: str) -> None:
        found = self.models[model].named_parameters(remove_duplicate=False)
        self.identities[model] = {n: id(p) for n, p in found}

    def _part(self, path: str, model: str) -> nn.Module:
        try:
            return self.models[model].get_submodule(path)
        except AttributeError as error:
            raise Missing(f"no part {path}") from error

    def _tensor(self, name: str, model: str) -> torch.Tensor:
        found = registered(self.models[model]).get(name)
        if found is None:
            raise Missing(f"no tensor {name}")
        return found

    def _cast(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {k: wide(v) for k, v in state.items()} if self.wide else state

    def _given(self, name: str, want: bool = False, cast: str = "") -> list[Any]:
        if name not in self.inputs and name in self.outputs:  # of an earlier call, as they are
            return tensors(self.outputs[name])[: len(next(iter(self.inputs.values())))]
        to = torch.float64 if self.wide else getattr(torch, cast) if cast else None
        return [fresh(v, self.device, to, want) for v in self.inputs[name]]
