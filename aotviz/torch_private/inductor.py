"""Inductor's inner compilers, called as Inductor itself would call them (docs/design/system.md E1).

`compile_fx`, Inductor's entry point, calls torch's own AOTAutograd. Our pipeline replaces AOTAutograd, so it calls the
other parts of Inductor itself: pre-grad passes on a graph from Dynamo, joint-graph passes before the partition, the
min-cut partitioner with `compiler="inductor"`, then `compile_fx_forward` and `compile_fx_backward`. The state that
these expect (config patches, a fake mode) is set up here.

Note [What Inductor's key leaves out]
Inductor overwrites saved tensors that are donated to a backward, but the key of its cache does not say which ones these
are. The cache could then return a backward that overwrites tensors for a backward that must keep them. The key does not
have the storage offsets of inputs either, and what `as_strided` reads depends on them, nor the streams on which nodes
run. Inductor also reuses the memory of a tensor when no node reads it any more, although a script object may still hold
the tensor. A pass over the scheduler's nodes solves all of these: it runs while Inductor plans the memory of a graph,
and the cache key contains its uuid. No other place allows both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.utils import counters, dynamo_timed
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor import compile_fx, config, custom_graph_pass, lowering
from torch._inductor import debug as inductor_debug
from torch._inductor.async_compile import AsyncCompile, CompiledTritonKernels
from torch._inductor.codecache import FxGraphCache
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.output_code import CompiledFxGraphConstants
from torch._inductor.utils import should_use_remote_fx_graph_cache
from torch._inductor.virtualized import V

from aotviz.torch_private import streams, versions
from aotviz.torch_private.context import CompilerFacts
from aotviz.torch_private.decompositions import scale_first
from aotviz.torch_private.graph_nodes import stream_of
from aotviz.torch_private.inductor_results import REPLAYED, fits

_KERNELS_ONLY = 2  # Inductor's cheapest level of provenance tracking
# The class of passes that have a uuid. Older releases have one class for all kinds of passes.
_Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)
_METHOD = torch.ops.higher_order.call_torchbind
_SHARED = "inductor"  # the key in `shared` of the config that Inductor shares between forward and backward


def folder_of_key(key: str) -> Path:
    """Where Inductor's cache has what is under a key: two levels below `fxgraph` in its folder."""
    return Path(FxGraphCache._get_tmp_dir_for_key(key))


class InductorCompilers:
    """The compilers of one program or of many. `patches` are Inductor's options, by their names in its config.

    `origin` is Dynamo's graph, if there is one. It may have annotations for Inductor.
    `left_whole` are operators that a graph may contain although they have a decomposition.
    """

    def __init__(
        self, patches: Mapping[str, Any], origin: fx.GraphModule | None = None, left_whole: Sequence[Any] = ()
    ) -> None:
        self.patches = dict(patches)
        self.origin = origin
        with config.patch(self.patches):
            wrapper: dict[str, Any] = {name: True for name in ("cpp_wrapper", "fx_wrapper") if getattr(config, name)}
        inner = functools.partial(compile_fx.compile_fx_inner, get_decomp_fn=select_decomp_table, **wrapper)
        # The backward is compiled when `around` is no longer active, so the compiler itself applies the patches.
        self._inner = config.patch(self.patches)(inner) if self.patches else inner
        for operator in left_whole:  # else, if the environment has CI, it demands a decomposition
            if operator not in lowering.lowerings:
                lowering.make_fallback(operator, warn=False)

    def decompositions(self) -> Mapping[Any, Any]:
        """The decompositions with which Inductor wants operators traced. They depend on its config."""
        with config.patch(self.patches):
            table: Mapping[Any, Any] = select_decomp_table()
            return table

    def forward(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], is_inference: bool = False
    ) -> Callable[..., Any]:
        """Compile the forward of a program that has a backward. `is_inference`: of one without."""
        facts = _facts()
        leading = 0 if is_inference else facts.num_mutated_inp_runtime_indices
        streams.tie(graph_module)
        scale_first(graph_module.graph)
        with (
            self._active(example_inputs),
            # Inductor itself applies these to a backward, but not to a forward.
            config.patch(compile_fx.get_cpp_wrapper_config()) if config.cpp_wrapper else contextlib.nullcontext(),
            _memory_facts(graph_module, example_inputs),
            _tracked() as found,
            dynamo_timed("compile_fx.<locals>.fw_compiler_base"),  # torch's names in its timeline, here and below
        ):
            if any(isinstance(one, torch.Tensor) and one.device.type in ("cuda", "xpu") for one in example_inputs):
                AsyncCompile.wakeup()  # to start the processes that compile kernels takes a while
            compiled: Callable[..., Any] = compile_fx.compile_fx_forward(
                graph_module,
                example_inputs,
                num_orig_model_outputs=facts.num_slots - leading,  # users see their strides, so Inductor keeps them
                num_example_inputs=len(example_inputs),
                compiler_config_extra=self._extra(graph_module),
                inner_compile=self._inner,
                is_inference=is_inference,
            )
            found(compiled)
        return compiled

    def inference(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self.forward(graph_module, example_inputs, is_inference=True)

    def backward(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a backward, in the same CUDA-graph tree as its forward."""
        streams.run_on_one(graph_module)
        scale_first(graph_module.graph)
        with (
            self._active(example_inputs),
            _memory_facts(graph_module, example_inputs, _facts().bw_donated_idxs),
            _tracked() as found,
            dynamo_timed("compile_fx.<locals>.bw_compiler"),
        ):
            compiled: Callable[..., Any] = compile_fx.compile_fx_backward(
                graph_module,
                example_inputs,
                compiler_config_extra=self._extra(graph_module),
                inner_compile=self._inner,
            )
            found(compiled)
        return compiled

    def stored(
        self, key: str, guards: str | None, module: Any, example_inputs: Sequence[Any], is_forward: bool
    ) -> Callable[..., Any] | None:
        """A graph that Inductor's cache holds under its own key, with these guards; None if it does not, or if that is
        the code of another graph."""
        with self._active(example_inputs), dynamo_timed("AOTAutogradCache.inductor_load"):
            CompiledTritonKernels.cache_clear()
            constants = CompiledFxGraphConstants()
            compiled, _ = FxGraphCache.load_with_key(
                key,
                [],
                example_inputs,
                local=config.fx_graph_cache,
                remote_cache=FxGraphCache.get_remote_cache() if should_use_remote_fx_graph_cache() else None,
                is_backward=not is_forward,
                constants=constants,
                evaluate_guards=lambda found, _: found == guards,
            )
            if compiled is None or not fits(compiled, example_inputs):
                return None
            extra = self._extra(module)
            arguments: Any = {
                "cudagraphs": extra.cudagraphs,
                "is_backward": not is_forward,
                "boxed_forward_device_index": extra.forward_device,
            }
            compiled.post_compile(example_inputs, constants, arguments)
            _mark_replayed(compiled)
        made: Callable[..., Any] = compiled
        return made

    def joint_pass(self, graph_module: fx.GraphModule, joint_inputs: Any) -> Any:
        """Run Inductor's passes over the joint graph, for patterns such as attention."""
        device = next(iter(compile_fx.get_inputs_devices(joint_inputs, graph_module)))
        with self._active([*joint_inputs[0], *joint_inputs[1]]), compile_fx.get_cuda_device_context(graph_module):
            return compile_fx._recursive_joint_graph_passes(graph_module, True, device)

    def partition(self, graph_module: fx.GraphModule, joint_inputs: Any, **arguments: Any) -> tuple[Any, Any]:
        """Split the joint graph as Inductor would."""
        own = config.custom_partitioner_fn
        chosen = own or min_cut_rematerialization_partition
        event = type(own).__name__ if own else min_cut_rematerialization_partition.__name__
        with config.patch(self.patches), dynamo_timed(event, log_pt2_compile_event=True):
            forward, backward = chosen(graph_module, joint_inputs, compiler="inductor", **arguments)
        return forward, backward

    def before_gradients(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
        """Run Inductor's passes over a graph from Dynamo, whose operators are still torch functions."""
        with self._active(example_inputs):
            changed: fx.GraphModule = compile_fx.run_pre_grad_passes(graph_module, example_inputs)
        return changed

    def _extra(self, graph_module: fx.GraphModule) -> Any:
        """Inductor's extra config, one per program: a backward must know what its forward found about CUDA graphs."""
        shared = _facts().shared
        if _SHARED not in shared:
            by_graph = versions.has("CUDA graphs are decided by graph")
            asked: Any = (self.origin or graph_module) if by_graph else config
            shared[_SHARED] = compile_fx.create_compiler_config_extra(asked)
        return shared[_SHARED]

    @contextlib.contextmanager
    def _active(self, example_inputs: Sequence[Any]) -> Iterator[None]:
        fake_mode = detect_fake_mode(list(example_inputs))
        with config.patch(self.patches), V.set_fake_mode(fake_mode):
            yield

    def around(self) -> contextlib.AbstractContextManager[Any]:
        """Must be active while the whole pipeline runs."""
        patched: contextlib.AbstractContextManager[Any] = config.patch(self.patches)
        return patched


for _compiler in (InductorCompilers.forward, InductorCompilers.inference, InductorCompilers.backward):
    vars(_compiler)["takes_lazy_graphs"] = True


class _MemoryFacts(_Pass):
    """A pass that runs before fusion, and before the user's own pass, if there is one."""

    def __init__(self, facts: tuple[Any, ...], before: Any) -> None:
        self.facts, self.before = facts, before

    def __call__(self, nodes: list[Any]) -> list[Any]:
        for node in nodes:
            if getattr(node.node, "op_overload", None) is _METHOD:
                V.graph.never_reuse_buffers.update(value.get_name() for value in node.node.inputs)
        return nodes if self.before is None else self.before(nodes)

    def uuid(self) -> Any:
        """Identifies this pass, and the user's, in a cache key."""
        theirs = self.before.uuid() if isinstance(self.before, _Pass) else None
        return ("aotviz memory", *self.facts, theirs)


def _memory_facts(
    module: fx.GraphModule, inputs: Sequence[Any], donated: Sequence[int] | None = None
) -> contextlib.AbstractContextManager[Any]:
    """See Note [What Inductor's key leaves out]. Compiling may overwrite the inputs at the positions `donated`; it is
    None for a forward, which has no donated inputs.
    """
    nodes = [node for one in module.modules() if isinstance(one, fx.GraphModule) for node in one.graph.nodes]
    calls_methods = any(_METHOD in (node.target, *node.args[:2]) for node in nodes)
    offsets = _offsets(inputs) if any(_reads_offsets(node.target) for node in nodes) else ()
    on_streams = tuple((node.name, stream) for node in nodes if (stream := stream_of(node)) is not None)
    if donated is None and not calls_methods and not offsets and not on_streams:
        return contextlib.nullcontext()
    before = config._pre_fusion_custom_pass
    told: Any = _MemoryFacts((tuple(donated or ()), *offsets, *on_streams), before)
    if before is not None and not isinstance(before, _Pass):
        told = told.__call__  # a bare function, like the user's own, keeps the graph out of the cache
    patched: contextlib.AbstractContextManager[Any] = config.patch(_pre_fusion_custom_pass=told)
    return patched


def _reads_offsets(target: Any) -> bool:
    """Whether what an operator reads depends on where in its storage a tensor begins."""
    return any(text in str(target) for text in ("as_strided", "storage_offset"))


def _offsets(inputs: Sequence[Any]) -> tuple[tuple[int, str], ...]:
    """(position, storage offset) of the inputs that do not begin where their storage does."""
    found = [(i, str(one.storage_offset())) for i, one in enumerate(inputs) if isinstance(one, torch.Tensor)]
    return tuple(pair for pair in found if pair[1] != "0")


@contextlib.contextmanager
def _tracked() -> Iterator[Callable[[Any], None]]:
    """Let Inductor record which nodes a kernel computes. Yields a function that marks results from Inductor's cache."""
    level = config.trace.provenance_tracking_level or _KERNELS_ONLY
    hits = counters["inductor"]["fxgraph_cache_hit"]

    def found(compiled: Any) -> None:
        if counters["inductor"]["fxgraph_cache_hit"] > hits:
            with contextlib.suppress(AttributeError):
                _mark_replayed(compiled)

    with config.patch({"trace.provenance_tracking_level": level}), inductor_debug.reset_provenance_globals():
        yield found


def _mark_replayed(compiled: Any) -> None:
    setattr(compiled, REPLAYED, int(getattr(compiled, "_time_taken_ns", 0) or 0))


def _facts() -> CompilerFacts:
    """The facts of the pipeline about the program that is being lowered."""
    facts = TracingContext.get().fw_metadata
    assert isinstance(facts, CompilerFacts)  # `context.lowering` puts them there
    return facts
