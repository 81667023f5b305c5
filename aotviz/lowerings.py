"""Lowerings: what a backend needs from the pipeline, found by the backend's name.

A backend is more than a compiler. Inductor needs its own decompositions, its passes over the joint graph, its variant
of the partitioner, and input mutations inside the graph. Running the graphs as they are needs none of these. A lowering
collects them as `Options`, and a user may replace each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from aotviz.ir import torchs_settings
from aotviz.ir.partition_functions import named
from aotviz.options import Options
from aotviz.torch_private import configs
from aotviz.torch_private.modules import boxed
from aotviz.torch_private.partitioners import default_partition, min_cut_rematerialization_partition
from aotviz.tracing import corrections

if TYPE_CHECKING:
    from aotviz.torch_private.inductor import InductorCompilers

_FIELDS = tuple(field.name for field in fields(Options))


class Lowering(Protocol):
    """How a backend takes part in a compilation."""

    @property
    def name(self) -> str: ...

    def options(self, **overrides: Any) -> Options:
        """The pipeline's options for this backend. An override of None keeps the backend's own choice."""
        ...

    def around(self) -> contextlib.AbstractContextManager[None]:
        """Must be active while the pipeline runs."""
        ...

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        """The lowering for one graph from Dynamo, and this graph after the backend's own passes."""
        ...


def run_graph(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A compiler that runs the graph as it is, operator by operator."""
    run = boxed(graph_module)
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


run_graph.takes_lazy_graphs = True  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Eager:
    """Run the graphs as they are. The wrapper writes to inputs, not the graphs."""

    name: str = "eager"

    def options(self, **overrides: Any) -> Options:
        chosen = {
            "fw_compiler": run_graph,
            "bw_compiler": run_graph,
            "inference_compiler": run_graph,
            "partition_fn": min_cut_rematerialization_partition,
            "backend": self.name,
        }
        return _options(chosen, overrides)

    def around(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        return self, graph


@dataclass(frozen=True)
class Inductor:
    """Lower to Inductor. `settings` are options of its config; `origin` is Dynamo's graph, if there is one."""

    settings: Mapping[str, Any]
    origin: Any = None
    name: str = "inductor"

    @property
    def compilers(self) -> InductorCompilers:
        from aotviz.torch_private.inductor import InductorCompilers  # takes a second, and only this lowering needs it

        return InductorCompilers(self.settings, self.origin, corrections.LEFT_WHOLE)

    def options(self, **overrides: Any) -> Options:
        compilers = self.compilers
        with compilers.around():
            found = {**torchs_settings.current(), "graphsafe_rng": configs.graphsafe_rng()}
        chosen = {
            **found,
            "fw_compiler": compilers.forward,
            "bw_compiler": compilers.backward,
            "inference_compiler": compilers.inference,
            "partition_fn": compilers.partition,
            "joint_pass": compilers.joint_pass,
            "decompositions": compilers.decompositions(),
            "keep_inference_input_mutations": True,
            "graph_counts_writes": False,  # its kernels write to memory without increasing version counters
            "backend": self.name,
        }
        return _options(chosen, overrides)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        with self.compilers.around():
            yield

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        made = replace(self, origin=graph)
        with made.around():
            return made, made.compilers.before_gradients(graph, inputs)


@dataclass(frozen=True)
class Custom:
    """A compiler of the user, for all graphs: `(graph_module, example_inputs) -> callable`."""

    compiler: Callable[..., Any]

    @property
    def name(self) -> str:
        return str(getattr(self.compiler, "__name__", type(self.compiler).__name__))

    def options(self, **overrides: Any) -> Options:
        chosen = {
            "fw_compiler": self.compiler,
            "bw_compiler": self.compiler,
            "inference_compiler": self.compiler,
            "partition_fn": default_partition,
            "backend": self.name,
        }
        return _options(chosen, overrides)

    def around(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        return self, graph


def _options(chosen: dict[str, Any], overrides: Mapping[str, Any]) -> Options:
    if overrides.get("partition_fn") is not None:
        overrides = {**overrides, "partition_fn": named(overrides["partition_fn"])}
    for name, value in overrides.items():
        if name not in _FIELDS:
            raise TypeError(f"{name!r} is not an option of a compilation; the options are {', '.join(_FIELDS)}")
        if value is not None:
            chosen[name] = value
    return Options(**{**torchs_settings.current(), **chosen})


def lowering_named(
    backend: str | Callable[..., Any], settings: Mapping[str, Any] | None = None, mode: str | None = None
) -> Lowering:
    """The lowering for "inductor", "eager", or a user's compiler. `settings` and `mode` are Inductor's.

    Raises:
        ValueError: another name; settings or a mode, but the backend is not Inductor; a setting unknown to Inductor.

    >>> lowering_named("eager").options().partition_fn.__name__
    'min_cut_rematerialization_partition'
    """
    if backend == "inductor":
        return Inductor(configs.for_inductor(mode, settings or {}, None))
    if settings:
        raise ValueError(f"backend {backend!r} has no settings, but these were passed: {', '.join(settings)}")
    if mode not in (None, "default"):
        raise ValueError(f"mode={mode!r} is a mode of Inductor; backend {backend!r} has no modes")
    if backend == "eager":
        return Eager()
    if isinstance(backend, str) or not callable(backend):
        raise ValueError(f"backend is {backend!r}; it can be 'inductor', 'eager' or a callable")
    return Custom(backend)
