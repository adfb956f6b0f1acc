"""What was chosen for a graph, as PyTorch's caches keep it on disk.

A second process finds it by the graph, the versions of both packages, the device and the options.
AOTAutograd's cache is asked first, which spares the tracing, too; then, where that knows no key,
each graph's own. Neither plans, compiles or times anything. What failed is kept nowhere.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch._inductor.output_code import CompiledFxGraph

from refold import __version__
from refold.backend.loaded import Boxed, Operator, Unbuilt, define, load
from refold.backend.missing import Gradients
from refold.backend.options import BackendOptions
from refold.backend.report import GraphReport, tell

log = logging.getLogger("refold")


class Kept(CompiledFxGraph):
    """A compiled graph: our function of it, or what Inductor compiled, in which parts may be ours.

    run: what is called. text, held: our function, and the tensors that the graph holds. operators:
    our parts. inner: what Inductor compiled. strides: of the results of our function, by dimension,
    as numbers or expressions of sizes; None for what is no tensor. report: what was chosen, and
    why; aloud: whether it is printed. gradients: what a backward does where some do not come.
    """

    def __init__(
        self,
        run: Boxed,
        report: GraphReport,
        *,
        text: str | None = None,
        held: Sequence[torch.Tensor] = (),
        operators: Sequence[Operator] = (),
        inner: CompiledFxGraph | None = None,
        strides: Sequence[Any] = (),
        aloud: bool = False,
    ) -> None:
        from torch._inductor.metrics import CachedMetricsHelper

        self.current_callable = run
        self.report, self.aloud = report, aloud
        self.text, self.held, self.operators = text, tuple(held), tuple(operators)
        self.inner, self.output_strides = inner, list(strides)
        self.gradients: Gradients | None = None
        # what the caches ask of any compiled graph
        self.source_code = text or ""
        self.runnable_graph_str = self.inductor_post_grad_graph_str = ""
        self.inductor_provenance_mapping_str = self.inductor_provenance_stack_traces_str = ""
        self.metrics_deltas = CachedMetricsHelper().get_deltas()
        self.counter_deltas = Counter()
        self.guards_expr = self.extern_libs_key = None
        self.compiled_fn_runner = self.recursively_apply_fns = self.compile_region_name = None
        self.partition_maps = inner.partition_maps if inner is not None else None
        self._fx_graph_cache_key, self._fx_graph_cache_debug_lines = None, []
        self._time_taken_ns = 0
        self._boxed_call, self._triton_bundle = True, None

    def __call__(self, inputs: Any) -> Any:
        assert self.current_callable is not None
        missing = self.gradients.missing(inputs) if self.gradients is not None else None
        if missing:
            assert self.gradients is not None
            return self.gradients.run(self.current_callable, inputs, missing)
        return self.current_callable(inputs)

    def prepare_for_serialization(self) -> None:
        """Of a copy that is pickled: let go of what cannot be."""
        self.current_callable = None
        self.report = replace(self.report, text=None, compiling=(0.0, 0.0), kept=True)
        if self.inner is not None:
            self.inner = copy.copy(self.inner)
            self.inner.prepare_for_serialization()

    def after_deserialization(self, constants: Any) -> str:
        """Load kernels, by which the graph can run again. Raises OSError, which the caches take for
        nothing found."""
        from torch._inductor.codecache import FxGraphCache

        try:
            for operator in self.operators:
                define(operator)
            if self.inner is not None:
                self.inner, _ = FxGraphCache.cache_hit_post_compile(self.inner, {}, constants)
                if self.inner is None:
                    raise OSError("what Inductor compiled is gone")
                self.current_callable = self.inner
            else:
                assert self.text is not None
                self.current_callable = load(self.text, self.held)
        except Unbuilt as error:
            raise OSError(str(error)) from error
        texts = [self.text] if self.text is not None else [o.text for o in self.operators]
        self.report = replace(self.report, text="\n\n".join(texts) or None)
        return ""

    def post_compile(
        self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any
    ) -> None:
        """What is done behind each loading."""
        from torch._inductor.utils import set_tracing_context_output_strides

        if self.inner is not None:
            self.inner.post_compile(example_inputs, constants, graph_kwargs)
        else:
            set_tracing_context_output_strides(example_inputs, self)
        tell(self.report, self.aloud)

    def _set_compile_context_for_autotune_cache(self) -> None:
        """There is nothing to tune in our function; Inductor's has its own."""


# --- keys -----------------------------------------------------------------------------------------
Key = tuple[str, list[str]]


@contextlib.contextmanager
def tagged(options: BackendOptions) -> Iterator[None]:
    """PyTorch's caches look for what was compiled by this package under these options."""
    config: Any = torch.compiler.config
    with config.patch(cache_key_tag=f"{config.cache_key_tag} {tag(options)}"):
        yield


def tag(options: BackendOptions) -> str:
    """All that our choice depends on beside what PyTorch's caches look at: the package, how it was
    asked, the accuracy that PyTorch's flags ask, what it was timed on, and to which type autocast
    casts: PyTorch 2.11 takes a graph of bfloat16 for one of float16."""
    flags = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    machine = torch.backends.cpu.get_cpu_capability(), os.cpu_count(), torch.get_num_threads()
    switch = os.environ.get("REFOLD_DISABLE", "0"), os.environ.get("CXX")
    return f"refold {_package()} {options} {flags} {machine} {switch} {_casts()}"


def _casts() -> dict[str, torch.dtype]:
    """The type that autocast casts to, of each kind of device where it is on."""
    kinds = "cpu", "cuda"
    return {k: torch.get_autocast_dtype(k) for k in kinds if torch.is_autocast_enabled(k)}


@functools.cache
def _package() -> str:
    """The version, and the size and date of each source: who changes one sees its effect."""
    found = hashlib.sha256(__version__.encode())
    for root, _, names in sorted(os.walk(Path(__file__).parents[1])):
        for name in sorted(n for n in names if not n.endswith(".pyc")):
            stat = os.stat(os.path.join(root, name))
            found.update(repr((name, stat.st_size, stat.st_mtime_ns)).encode())
    return found.hexdigest()[:16]


P = ParamSpec("P")
T = TypeVar("T")


def _or_none(ask: Callable[P, T | None]) -> Callable[P, T | None]:
    """The caches are PyTorch's own, and another version may have others: then nothing is kept,
    which a warning says once, and all is compiled as it would be."""

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            # what is read under a mode of tensors without memory would be such tensors
            with torch.utils._python_dispatch._disable_current_modes():
                return ask(*args, **kwargs)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said not in _told:
                _told.add(said)
                log.warning("refold: a compiled graph is not kept on disk (%s)", said)
            return None

    return asked


_told: set[str] = set()


@_or_none
def key_of(
    options: BackendOptions,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
) -> Key | None:
    """The key of a graph; None where PyTorch's caches are off, or cannot know it."""
    from torch._inductor import config
    from torch._inductor.codecache import FxGraphCache
    from torch._inductor.compile_fx import get_input_idxs_to_check

    off = config.force_disable_caches or not config.fx_graph_cache
    if off or torch._functorch.config.bundled_autograd_cache:
        return None
    checked = get_input_idxs_to_check(inputs, given.get("static_input_idxs", ()))
    with tagged(options):
        key, _ = FxGraphCache.prepare_key(module, inputs, dict(given), checked, False)  # type: ignore[arg-type]
    return key


def key_named(name: str) -> Key:
    """A key as PyTorch's caches have them."""
    from torch._inductor.codecache import sha256_hash

    return "f" + sha256_hash(name.encode()), []


def without_empty_key(run: Any) -> Any:
    """What AOTAutograd is given: a graph that was kept, or else a function, which has no key.

    PyTorch 2.11 takes whatever has the attribute of a key, None among it, for kept, and fails.
    """
    bundled = torch._functorch.config.bundled_autograd_cache  # it needs no key
    if bundled or not isinstance(run, Kept) or run._fx_graph_cache_key is not None:
        return run

    def unkept(inputs: list[Any]) -> Any:
        return run(inputs)

    unkept._boxed_call = True  # type: ignore[attr-defined]
    return unkept


@_or_none
def find(
    key: Key, module: torch.fx.GraphModule, inputs: Sequence[Any], given: Mapping[str, Any]
) -> Kept | None:
    """What was kept of a graph, ready to run."""
    from torch._inductor import config
    from torch._inductor.codecache import FxGraphCache
    from torch._inductor.output_code import CompiledFxGraphConstantsWithGm
    from torch._inductor.utils import BoxedBool

    backward = bool(given.get("is_backward"))
    constants = CompiledFxGraphConstantsWithGm(module)
    found, _ = FxGraphCache.load_with_key(*key, inputs, True, None, backward, constants)
    if not isinstance(found, Kept):
        return None
    settings = {"is_backward": False, "boxed_forward_device_index": None} | dict(given)
    if settings.get("cudagraphs") is None:
        settings["cudagraphs"] = BoxedBool(config.triton.cudagraphs)
    found.post_compile(inputs, constants, settings)
    found._fx_graph_cache_key, found._fx_graph_cache_debug_lines = key
    return found


@_or_none
def keep(key: Key, found: Kept, inputs: Sequence[Any]) -> None:
    """Write what was chosen, and let AOTAutograd's cache refer to it."""
    from torch._inductor.codecache import FxGraphCache

    FxGraphCache._save_graph(key[0], found, inputs, True, None)
    found._fx_graph_cache_key, found._fx_graph_cache_debug_lines = key
