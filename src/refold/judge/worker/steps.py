"""The interpreter of lives: programs of steps as data, run on a module and never reloaded between.

The parent runs a life on the reference, as it is and in float64; a worker runs the same steps on
the candidate. It is one module for all three, so what is compared is what was done alike.

A step is a dict: ``do`` names a method of `Interpreter`, the rest are its arguments. What a step
observes goes to `Interpreter.seen` under a label. See `verdict.life` for what is made of it.
"""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from refold.contract import seed_everything
from refold.judge import draws
from refold.judge.worker import (
    backward,
    flags,
    forms,
    looks,
    many,
    saving,
    structure,
    values,
    writes,
)
from refold.judge.worker.leaves import copied, load, same, tensors
from refold.judge.worker.looks import FACT, GRADS, MOST, OUTPUT, SWITCHES, WRITTEN, Missing
from refold.judge.worker.settings import Setters
from refold.judge.worker.values import fresh

Tree = Any
Step = dict[str, Any]
__all__ = ["FACT", "GRADS", "Interpreter", "Missing", "Step"]


class Interpreter(saving.Saving, Setters, many.Many):
    """One run of one life.

    make: builds a module as the constructor leaves it. states: by name. inputs: by name, lists of
    arguments. wide: the module and everything that it is given is in float64. parallel: threads
    are threads; else their calls come one after another. move: of cotangents, see `backward.run`.
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
        move: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.make, self.states, self.inputs = make, states, inputs
        self.seed, self.device, self.wide, self.parallel = seed, device, wide, parallel
        self.on_build, self.move = on_build, move
        self.models: dict[str, nn.Module] = {}
        self.held: dict[str, dict[str, torch.Tensor]] = {}  # parameters as an optimizer holds them
        self.moments: dict[Any, Any] = {}
        self.saved: dict[str, Any] = {}
        self.outputs: dict[str, Tree] = {}
        self.given: dict[str, Tree] = {}
        self.counts: dict[str, int] = {}
        self.handles: list[Any] = []
        self.given_to_hooks: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.pool: ThreadPoolExecutor | None = None
        self.under: dict[str, Any] = {}  # settings that are not put back yet
        self.seen: list[list[Any]] = []
        self.identities: dict[str, dict[str, weakref.ref[torch.Tensor]]] = {}
        self.left: set[str] = set()  # switches that a call left changed
        self.written: list[str] = []  # calls that wrote to their inputs

    def run(self, steps: Sequence[Step]) -> dict[str, Any]:
        """What was seen, as ``[label, kind, tree]``, and what a step raised, after which none
        follow: its number, type and message."""
        before = {} if self.wide else flags.snapshot()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of hooks on outputs that are no tensors
            raised = self._all(steps)
        self.unhook()
        self.put_back_settings()
        if self.pool is not None:
            self.pool.shutdown()
        if not self.wide:
            after = flags.snapshot()
            self.left |= {k for k, v in before.items() if after[k] != v} - set(flags.BY_THE_WAY)
            self._see(SWITCHES, FACT, sorted(self.left))
            self._see(WRITTEN, MOST, self.written)
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
            load(made, self._cast(self.states[state]))
        self._identify(model)

    def clone(self, to: str, model: str = "a", deep: bool = True) -> None:
        """``copy.deepcopy``, or ``copy.copy``."""
        self.models[to] = (copy.deepcopy if deep else copy.copy)(self.models[model])
        self._identify(to)

    def drop(self, model: str) -> None:
        """Forget a module, its outputs and its memory."""
        del self.models[model]

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

    # -- calls ---------------------------------------------------------------------------------

    def call(
        self,
        inputs: str,
        label: str,
        model: str = "a",
        grad: bool = False,
        want: bool | list[int] = False,
        seeded: bool = True,
        how: str = "",
        words: Sequence[str] = (),
        cast: str = "",
        rows: int = -1,
        see: bool = True,
        given_to: str = "",
        kind: str = "",
    ) -> None:
        """One forward. ``grad``: with autograd on; ``want``: the inputs want gradients, or those
        of these numbers do; ``how``, ``words``: see `forms.call`; ``rows``: of the inputs' first
        axis, as the first input has it, so many; ``given_to``: the very tensors of another call;
        ``kind``: see `values.KINDS`."""
        given = self.given[given_to] if given_to else self._given(inputs, want, cast, rows)
        given = draws.mapped(given, values.KINDS[kind]) if kind else given
        self.given[label] = given
        if seeded:
            seed_everything(self.seed)
        module = self.models[model]
        before = [] if self.wide else [copied(t) for t in tensors(given)]
        mode, hooks = module.training, looks.hooks(module)
        with torch.set_grad_enabled(grad):
            output = forms.call(module, given, words, how, self.device, self.wide)
            self._still(grad)
        if not all(map(same, tensors(given), before)):
            self.written.append(f"inputs of {label!r}")
        if module.training != mode:
            self.written.append(f"the mode, by {label!r}")
        if looks.hooks(module) != hooks:
            self.written.append(f"hooks of the module, by {label!r}")
        if see and not self.wide:
            self.written += [f"{what} of {label!r}" for what in looks.shared(output, given, module)]
        output = values.plain(output) if kind else output
        self.outputs[label] = output
        if see:
            self._see(label, OUTPUT, copied(output))

    def learn(self, of: str, rate: float) -> None:
        """Step the inputs of a call along their gradients, in place, as an optimizer does."""
        with torch.no_grad():
            for tensor in tensors(self.given[of]):
                if tensor.grad is not None:
                    tensor.sub_(tensor.grad, alpha=rate)
                tensor.grad = None

    def spoil(self, of: str) -> None:
        """Write to the outputs of a call, which are the caller's."""
        with torch.no_grad():
            for tensor in tensors(self.outputs[of]):
                tensor.fill_(7)

    def change(self, of: str, apart: bool = False) -> None:
        """Change the outputs of a call in place, where autograd sees it: as the next layer may;
        ``apart``: the reference's, which would refuse its backward then, out of place."""
        if apart and not self.parallel:
            self.outputs[of] = draws.mapped(self.outputs[of], lambda t: 2 * t)
            return
        for tensor in tensors(self.outputs[of]):
            if tensor.is_floating_point():
                tensor.mul_(2)

    def refuse(
        self,
        inputs: str,
        model: str = "a",
        label: str = "",
        words: Sequence[str] = (),
        grad: bool = False,
    ) -> None:
        """A call that the reference refuses, of further keywords, too; with a label, whether it was
        refused is seen."""

        def called() -> None:
            with torch.set_grad_enabled(grad):
                try:
                    self.models[model](*self._given(inputs), **dict.fromkeys(words))
                finally:
                    self._still(grad)

        self._refused(called, label)

    def refuse_backward(self, of: str, label: str) -> None:
        """A backward that the reference refuses; whether it was refused is seen."""
        self._refused(lambda: self.backward(of), label)

    def _refused(self, what: Callable[[], None], label: str) -> None:
        refused = False
        try:
            what()
        except Exception:
            refused = True
        if label:
            self._see(label, FACT, refused)

    # -- weights -------------------------------------------------------------------------------

    def write(self, names: list[str], how: str, factor: float, model: str = "a") -> None:
        """Multiply tensors by a factor, in one of the ways of `writes`."""
        writes.WAYS[how](self.models[model], {n: self._tensor(n, model) for n in names}, factor)

    def write_part(
        self, name: str, at: int, count: int, how: str, model: str = "a", little: bool = False
    ) -> None:
        """Change some consecutive elements of a tensor."""
        tensor = self._tensor(name, model)
        flat = (tensor.data if how == "data" else tensor.detach()).reshape(-1)
        if flat.data_ptr() != tensor.data_ptr():
            raise Missing(f"{name} lies in no one piece")
        with torch.no_grad():
            part = flat[at : at + count]
            flat[at : at + count] = part + writes.little(flat) if little else part * 1.5 + 0.5

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

    def backward(
        self, of: str | list[str], how: str = "random", apart: bool = False, **options: Any
    ) -> None:
        """A backward of the outputs of a call, or of several calls at once; ``apart``: in another
        thread; see `backward.run`."""
        calls = [of] if isinstance(of, str) else of
        outputs, given = ([held[name] for name in calls] for held in (self.outputs, self.given))
        options["move"] = self.move
        run = functools.partial(backward.run, outputs, given, how, self.seed, **options)
        if not apart:
            run()
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run).result()

    def penalize(self, of: str, names: list[str], model: str = "a") -> None:
        """A backward of the squared gradients of weights."""
        backward.penalize(self.outputs[of], [self._tensor(n, model) for n in names], self.seed)

    def slopes(self, of: str, names: list[str], label: str, model: str = "a") -> None:
        """`torch.autograd.grad` by weights and inputs, which the caller keeps as they come."""
        held = [self._tensor(n, model) for n in names]
        held += [t for t in tensors(self.given[of]) if t.requires_grad]
        self.outputs[label] = backward.slopes(self.outputs[of], held, self.seed)
        self._see(label, OUTPUT, copied(self.outputs[label]))

    def zero(self, model: str = "a", fill: bool = False) -> None:
        """``zero_grad()``; ``fill``: gradients stay, and are zeros."""
        self.models[model].zero_grad(set_to_none=not fill)

    def grads(
        self, names: list[str], label: str, of: str = "", model: str = "a", few: bool = False
    ) -> None:
        """See the gradients of parameters, and of the inputs of a call; ``few``: of few bits."""
        found: dict[str, Any] = {n: self._tensor(n, model).grad for n in names}
        if of:
            found |= {f"input {i}": t.grad for i, t in enumerate(tensors(self.given[of]))}
        seen = {k: None if v is None else copied(v) for k, v in found.items()}
        if few:
            seen = {k: None if v is None else v.to(torch.bfloat16) for k, v in seen.items()}
        self._see(label, GRADS, seen)

    # -- helpers -------------------------------------------------------------------------------

    def _still(self, grad: bool) -> None:
        """Note whether a call left the mode of gradients changed: behind the block it is back."""
        if torch.is_grad_enabled() != grad:
            self.left.add("grad enabled")

    def _given(
        self, name: str, want: bool | list[int] = False, cast: str = "", rows: int = -1
    ) -> list[Any]:
        if name not in self.inputs and name in self.outputs:  # of an earlier call, as they are
            return tensors(self.outputs[name])[: len(next(iter(self.inputs.values())))]
        to = torch.float64 if self.wide else getattr(torch, cast) if cast else None
        held = self.inputs[name] if rows < 0 else values.first(self.inputs[name], rows)
        if self.wide and cast:  # as who is moved to a narrower type is given them
            held = draws.mapped(held, lambda t: values.narrowed(t, getattr(torch, cast)))
        given = [fresh(v, self.device, to, want is True) for v in held]
        for number in want if isinstance(want, list) else ():
            tensors(given)[number].requires_grad_()
        return given
