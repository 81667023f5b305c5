"""Lowerings: what a backend needs from the pipeline, found by the backend's name.

A backend is more than a compiler. Inductor needs its own decompositions, its passes over the joint graph, its variant
of the partitioner, and input mutations inside the graph. Running the graphs as they are needs none of these. A lowering
collects them as `Options`, and a user may replace each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from aotviz.ir import torchs_settings
from aotviz.ir.partition_functions import named
from aotviz.options import Options, compilers
from aotviz.torch_private import configs
from aotviz.torch_private.modules import boxed_now
from aotviz.torch_private.partitioners import default_partition, min_cut_rematerialization_partition
from aotviz.tracing import corrections

if TYPE_CHECKING:
    from aotviz.torch_private.inductor import InductorCompilers

_FIELDS = tuple(field.name for field in fields(Options))


class Lowering:
    """How a backend takes part in a compilation."""

    name: str

    def options(self, **overrides: Any) -> Options:
        """The pipeline's options for this backend. An override of None keeps the backend's own choice."""
        raise NotImplementedError

    def stored(self, key: str, guards: str | None, module: Any, inputs: Sequence[Any], is_forward: bool) -> Any:
        """A compiled graph that its compiler has stored, by its key there; None if it is gone."""
        raise NotImplementedError

    def around(self) -> contextlib.AbstractContextManager[None]:
        """Must be active while the pipeline runs."""
        return contextlib.nullcontext()

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        """The lowering for one graph from Dynamo, and this graph after the backend's own passes."""
        return self, graph


def run_graph(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A compiler that runs the graph as it is, operator by operator."""
    run: Any = boxed_now(graph_module)
    run.__func__._boxed_call = True
    return run


run_graph.takes_lazy_graphs = True  # type: ignore[attr-defined]


@dataclass(frozen=True)
class OneCompiler(Lowering):
    """One compiler for all graphs. The wrapper writes to inputs, not the graphs."""

    name: str
    compiler: Callable[..., Any]
    partition_fn: Callable[..., Any] = default_partition

    def options(self, **overrides: Any) -> Options:
        chosen = {**compilers(self.compiler), "partition_fn": self.partition_fn, "backend": self.name}
        return _options(chosen, overrides)


EAGER = OneCompiler("eager", run_graph, min_cut_rematerialization_partition)


@dataclass(frozen=True)
class Inductor(Lowering):
    """Lower to Inductor. `settings` are options of its config; `origin` is Dynamo's graph, if there is one."""

    settings: Mapping[str, Any]
    origin: Any = None
    name: str = "inductor"

    @property
    def compilers(self) -> InductorCompilers:
        from aotviz.torch_private.inductor import InductorCompilers  # takes a second, and only this lowering needs it

        return InductorCompilers(self.settings, self.origin, corrections.LEFT_WHOLE)

    def options(self, **overrides: Any) -> Options:
        inductor = self.compilers
        with inductor.around():
            found = {**torchs_settings.current(), "graphsafe_rng": configs.graphsafe_rng()}
        chosen = {
            **found,
            **compilers(inductor.forward, inductor.backward, inductor.inference),
            "partition_fn": inductor.partition,
            "joint_pass": inductor.joint_pass,
            "decompositions": inductor.decompositions(),
            "keep_inference_input_mutations": True,
            "graph_counts_writes": False,  # its kernels write to memory without increasing version counters
            "backend": self.name,
        }
        return _options(chosen, overrides)

    def stored(self, key: str, guards: str | None, module: Any, inputs: Sequence[Any], is_forward: bool) -> Any:
        return self.compilers.stored(key, guards, module, inputs, is_forward)

    def around(self) -> contextlib.AbstractContextManager[None]:
        return self.compilers.around()

    def for_graph(self, graph: Any, inputs: Sequence[Any]) -> tuple[Lowering, Any]:
        made = replace(self, origin=graph)
        with made.around():
            return made, made.compilers.before_gradients(graph, inputs)


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
        return Inductor(configs.for_inductor(mode, settings or {}))
    if settings:
        raise ValueError(f"backend {backend!r} has no settings, but these were passed: {', '.join(settings)}")
    if mode not in (None, "default"):
        raise ValueError(f"mode={mode!r} is a mode of Inductor; backend {backend!r} has no modes")
    if backend == "eager":
        return EAGER
    if isinstance(backend, str | torch.nn.Module) or not callable(backend):
        what = f"the module {type(backend).__name__}" if isinstance(backend, torch.nn.Module) else repr(backend)
        raise ValueError(
            f"backend is {what}; it can be 'inductor', 'eager' or a callable (graph_module, example_inputs) -> callable"
        )
    return OneCompiler(str(getattr(backend, "__name__", type(backend).__name__)), backend)
