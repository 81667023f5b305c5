"""Inductor's inner compilers, called as Inductor itself would call them (SYSTEM.md E1).

`compile_fx` is Inductor's front door, and it leads through torch's own AOTAutograd. This pipeline takes that place,
so it enters behind it: pre-grad passes on a graph of Dynamo's, joint-graph passes before the cut, the min-cut
partitioner in Inductor's flavour, then `compile_fx_forward` and `compile_fx_backward`. The state that these expect
around them (config patches, a fake mode) is set up here. What differs by release is asked of
the function itself: `_accepted` passes only the arguments that this release knows.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.fx as fx
from torch._dynamo.utils import counters
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor import compile_fx, config, lowering
from torch._inductor import debug as inductor_debug
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V

from aotviz.torch_private import versions
from aotviz.torch_private.context import CompilerFacts
from aotviz.torch_private.inductor_memory import memory_facts
from aotviz.torch_private.inductor_results import REPLAYED

C = TypeVar("C", bound=Callable[..., Any])

_KERNELS_ONLY = 2  # the cheapest of Inductor's levels of provenance
_SHARED = "inductor"  # where the forward leaves for the backward what Inductor shares between the two


def _takes_lazy_graphs(compiler: C) -> C:
    compiler.takes_lazy_graphs = True  # type: ignore[attr-defined]
    return compiler


class InductorCompilers:
    """The compilers of one program or of many. `patches` are Inductor's options, by their names in its config.

    `origin` is Dynamo's graph, where there is one; it may carry annotations for Inductor.
    `left_whole` are operators that a graph may have though a decomposition of them exists.
    """

    def __init__(
        self, patches: Mapping[str, Any], origin: fx.GraphModule | None = None, left_whole: Sequence[Any] = ()
    ) -> None:
        self.patches = dict(patches)
        self.origin = origin
        with config.patch(self.patches):
            wrapper = {name: True for name in ("cpp_wrapper", "fx_wrapper") if getattr(config, name, False)}
        inner = functools.partial(compile_fx.compile_fx_inner, get_decomp_fn=select_decomp_table, **wrapper)
        # The backward is compiled when nothing of `around` is active any more, so the patches go with the compiler.
        self._inner = config.patch(self.patches)(inner) if self.patches else inner
        for operator in left_whole:  # or it asks, where the variable CI is set, for a decomposition
            if operator not in lowering.lowerings:
                lowering.make_fallback(operator, warn=False)

    def decompositions(self) -> Mapping[Any, Any]:
        """How Inductor wants operators to be traced. Depends on its config."""
        with config.patch(self.patches):
            table: Mapping[Any, Any] = select_decomp_table()
            return table

    @_takes_lazy_graphs
    def forward(self, graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """The forward of a program with a backward."""
        return self._forward(graph_module, example_inputs, is_inference=False)

    @_takes_lazy_graphs
    def inference(self, graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """A program without a backward."""
        return self._forward(graph_module, example_inputs, is_inference=True)

    def _forward(self, graph_module: Any, example_inputs: Sequence[Any], is_inference: bool) -> Callable[..., Any]:
        facts = _facts()
        leading = 0 if is_inference or facts is None else facts.num_mutated_inp_runtime_indices
        slots = _output_count(graph_module) if facts is None else facts.num_slots
        with self._active(example_inputs), _wrapper_settings(), memory_facts(graph_module, None), _tracked() as found:
            _wake_workers(example_inputs)
            compiled: Callable[..., Any] = compile_fx.compile_fx_forward(
                graph_module,
                example_inputs,
                num_orig_model_outputs=slots - leading,  # their strides are the user's to see, so Inductor keeps them
                num_example_inputs=len(example_inputs),
                compiler_config_extra=self._extra(facts, graph_module),
                inner_compile=self._inner,
                is_inference=is_inference,
            )
            found(compiled)
        return compiled

    @_takes_lazy_graphs
    def backward(self, graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """The backward, in the same CUDA-graph tree as its forward."""
        facts = _facts()
        donated = () if facts is None else facts.bw_donated_idxs or ()
        with self._active(example_inputs), memory_facts(graph_module, donated), _tracked() as found:
            compiled: Callable[..., Any] = compile_fx.compile_fx_backward(
                graph_module,
                example_inputs,
                compiler_config_extra=self._extra(facts, graph_module),
                inner_compile=self._inner,
            )
            found(compiled)
        return compiled

    def joint_pass(self, graph_module: Any, joint_inputs: Any) -> Any:
        """Inductor's passes over the joint graph: patterns such as attention that span forward and backward."""
        passes = compile_fx._recursive_joint_graph_passes
        devices = compile_fx.get_inputs_devices(joint_inputs, graph_module)
        with self._active([*joint_inputs[0], *joint_inputs[1]]), compile_fx.get_cuda_device_context(graph_module):
            arguments = _accepted(passes, skip_invoke_subgraph=True, input_device=next(iter(devices)))
            return passes(graph_module, **arguments)

    def partition(self, graph_module: Any, joint_inputs: Any, **arguments: Any) -> tuple[Any, Any]:
        """Cut the joint graph as Inductor would."""
        chosen = getattr(config, "custom_partitioner_fn", None) or min_cut_rematerialization_partition
        with config.patch(self.patches):
            forward, backward = chosen(graph_module, joint_inputs, compiler="inductor", **arguments)
        return forward, backward

    def before_gradients(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
        """Inductor's passes over a graph of Dynamo's, whose operators are still torch functions."""
        passes = getattr(compile_fx, "run_pre_grad_passes", None) or compile_fx._recursive_pre_grad_passes
        with self._active(example_inputs):
            changed: fx.GraphModule = passes(graph_module, example_inputs)
        return changed

    def _extra(self, facts: CompilerFacts | None, graph_module: Any) -> Any:
        """One per program: what its forward finds out about CUDA graphs, its backward must know."""
        shared: dict[str, Any] = {} if facts is None else facts.shared
        if _SHARED not in shared:
            by_graph = versions.has("CUDA graphs are decided by graph")
            asked = (self.origin or graph_module) if by_graph else config
            shared[_SHARED] = compile_fx.create_compiler_config_extra(asked)
        return shared[_SHARED]

    @contextlib.contextmanager
    def _active(self, example_inputs: Sequence[Any]) -> Iterator[None]:
        fake_mode = detect_fake_mode(list(example_inputs))
        with config.patch(self.patches), V.set_fake_mode(fake_mode):
            yield

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """What must hold while the whole pipeline runs."""
        with config.patch(self.patches):
            yield


@contextlib.contextmanager
def _tracked() -> Iterator[Callable[[Any], None]]:
    """Inductor keeps which nodes a kernel computes. What this yields notes of its result whether its cache had it."""
    level = getattr(config.trace, "provenance_tracking_level", None)
    hits = counters["inductor"]["fxgraph_cache_hit"]

    def found(compiled: Any) -> None:
        if counters["inductor"]["fxgraph_cache_hit"] > hits:
            with contextlib.suppress(AttributeError):
                setattr(compiled, REPLAYED, int(getattr(compiled, "_time_taken_ns", 0) or 0))

    with contextlib.ExitStack() as stack:
        if level is not None:
            stack.enter_context(config.patch({"trace.provenance_tracking_level": level or _KERNELS_ONLY}))
            stack.enter_context(inductor_debug.reset_provenance_globals())
        yield found


def _facts() -> CompilerFacts | None:
    """What the pipeline says of the program that is being lowered."""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    return facts if isinstance(facts, CompilerFacts) else None


def _wrapper_settings() -> contextlib.AbstractContextManager[Any]:
    """What Inductor sets for its C++ wrapper; it does so itself for a backward."""
    if not config.cpp_wrapper:
        return contextlib.nullcontext()
    patched: contextlib.AbstractContextManager[Any] = config.patch(compile_fx.get_cpp_wrapper_config())
    return patched


def _wake_workers(example_inputs: Sequence[Any]) -> None:
    """Kernels for a GPU are compiled by other processes, which take a while to start."""
    devices = {value.device.type for value in example_inputs if isinstance(value, torch.Tensor)}
    if not devices.isdisjoint(("cuda", "xpu")):
        AsyncCompile.wakeup()


def _output_count(graph_module: fx.GraphModule) -> int:
    (node,) = graph_module.graph.find_nodes(op="output")
    return len(node.args[0])


def _accepted(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Those of `arguments` that this release's `function` takes."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}
