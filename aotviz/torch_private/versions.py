"""The releases of torch that aotviz supports, the private names that it uses, and a clear error for other releases.

Everything that differs by release depends on these tables. No other code reads torch's version.

Note [Private names are probed]
`NAMES` lists every private name that this folder uses, by the file that uses it. `Probe` looks up the names of a file
just before the file is imported, and so before anything is compiled. If a release lacks a name, `probe` raises an error
that gives the supported releases; otherwise there would be an AttributeError in the middle of a trace. Files that are
imported late, such as Inductor's, are probed late. `tests/test_private_names.py` compares the table with the sources,
both ways.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

import torch

SUPPORTED = {  # (major, minor): is it tested in CI
    (2, 11): False,
    (2, 12): False,
    (2, 13): True,
    (2, 14): False,
    (2, 15): False,
}

SINCE = {  # features that aotviz or its tests depend on, and the first release with each
    "CUDA graphs are decided by graph": (2, 12),
    "a trace takes generators": (2, 13),
    "calls of regions are numbered": (2, 13),
    "a failing linear algebra is an effect": (2, 13),
    "a backward inside is found by itself": (2, 13),
    "a backward may empty its list of gradients": (2, 13),
    "the proxy mode holds the decompositions": (2, 13),
    "the tracing flag is per thread": (2, 14),
    "an input that grows is taken for a view": (2, 15),
    "an export is traced once more": (2, 15),
}

# file of this folder -> lines of "owner: names". If not all releases have a name, brackets say which do: `[2.14-]` is
# since 2.14, `[-2.13]` is until 2.13. A file can do without a `[?]`, which only some releases or some objects have.
NAMES = {
    "autograd_compiler": """
        torch._dynamo.compiled_autograd: AutogradCompilerInstance.cpp_tensor_pre_hook
        torch._dynamo.compiled_autograd: AutogradCompilerInstance.proxy_call_backward
        torch._dynamo.compiled_autograd: AutogradCompilerInstance.set_node_origin
        torch._dynamo.compiled_autograd: AutogradCompilerInstance.tensor_pre_hook _disable
    """,
    "autograd_nodes": """
        torch.Tensor: _backward_hooks
        torch._C: _current_autograd_node _current_graph_task_id _will_engine_execute_node
        torch._functorch.autograd_function: autograd_function_apply
        torch.autograd.Variable: _execution_engine.queue_callback
        torch.autograd.graph.Node: _input_metadata _register_hook_dict _sequence_nr
        torch.autograd.graph: _engine_run_backward
        torch.utils.checkpoint.CheckpointFunction._backward_cls: _raw_saved_tensors
    """,
    "checkpoints": """
        torch._higher_order_ops.wrap: TagActivationCheckpoint tag_activation_checkpoint_impl uid
        torch.utils.checkpoint: _checkpoint_without_reentrant_generator
        torch.utils.checkpoint: _checkpoint_without_reentrant_generator_impl[?]
    """,
    "backward_capture": """
        torch._C._dynamo.compiled_autograd: call_cpp_tensor_pre_hooks clear_cache set_autograd_compiler
        torch._dynamo: compiled_autograd
        torch._dynamo.compiled_autograd: Op _disable compiled_autograd_enabled ops
        torch._dynamo.source: ConstantSource
    """,
    "backward_engine": """
        torch.autograd: _engine_run_backward
        torch.autograd.Variable: _execution_engine
        torch.autograd.graph: _engine_run_backward
        torch.autograd.graph.Node: _sequence_nr
    """,
    "compiled_autograd": """
        torch._dynamo.external_utils: FakeBackwardCFunction
        torch.utils.checkpoint.CheckpointFunction._backward_cls: _autograd_function_id _forward_cls
        torch.utils.checkpoint.CheckpointFunction._backward_cls: _get_compiled_autograd_symints
    """,
    "configs": """
        torch: _TorchCompileInductorWrapper
        torch._dynamo: config
        torch._functorch.config: _config backward_pass_autocast debug_assert donated_buffer
        torch._functorch.config: force_non_lazy_backward_lowering functionalize_rng_ops
        torch._functorch.config: graphsafe_rng_functionalization joint_custom_pass
        torch._functorch.config: remat_using_tags_for_fwd_loss_bwd_graph selective_decompose
        torch._inductor.config: fallback_random get_config_copy selective_decompose triton.cudagraphs
    """,
    "context": """
        torch._C: _DisableAutocast _is_any_autocast_enabled
        torch._guards: CompileContext.try_get TracingContext.try_get compile_context tracing
        torch.utils._device: CURRENT_DEVICE
    """,
    "decompositions": """
        torch._C: DispatchKey.Autograd DispatchKey.CompositeImplicitAutograd _AutoDispatchBelowAutograd
        torch._decomp.decompositions: Reduction _rnn_helper _upsample_linear_vec dropout matmul multi_margin_loss
        torch._decomp.decompositions: one_layer_lstm select_one_layer_lstm_function upsample_bicubic2d_default
        torch._decomp.decompositions: upsample_bicubic2d_vec upsample_bilinear2d upsample_compute_output_size
        torch.ops: aten._log_softmax_backward_data.default aten._native_batch_norm_legit
        torch.ops: aten._native_batch_norm_legit_functional.default aten._native_batch_norm_legit_no_training.default
        torch.ops.aten.add.Tensor: _dispatch_cache
    """,
    "dispatch": """
        torch._C: DispatchKey.Functionalize DispatchKeySet _ExcludeDispatchKeyGuard _TorchDispatchModeKey.FUNCTIONAL
        torch._C: _get_dispatch_mode
        torch._dispatch.python: enable_python_dispatcher no_python_dispatcher
        torch.utils._python_dispatch: TorchDispatchMode _disable_current_modes
    """,
    "dynamo": """
        get_metrics_context(): _metrics
        torch.Tensor: _dynamo_static_input_type[?]
        torch._dynamo.backends.registry: _BACKENDS.setdefault
        torch._dynamo.config: error_on_recompile recompile_limit
        torch._dynamo.convert_frame: _compile
        torch._dynamo.eval_frame: _debug_get_cache_entry_list _stance.stance
        torch._dynamo.exc: BackendCompilerFailed
        torch._dynamo: external_utils
        torch._dynamo.utils: counters get_metrics_context
        torch._guards: CompileContext.current_compile_id CompileContext.try_get DuplicateInputs TracingContext.get
        torch._guards: TracingContext.try_get
        torch._logging.structured: INTERN_TABLE.items
        torch.fx: Node._dynamo_source[?]
    """,
    "effect_operators": """
        torch._higher_order_ops.effects: _get_effect[?]
        torch.ops: aten._linalg_check_errors.default[-2.12] prims._make_token.default prims._sink_tokens.default
    """,
    "fake_tensors": """
        torch._dynamo.source: ConstantSource
        torch._guards: detect_fake_mode
        torch._subclasses.fake_tensor: DataDependentOutputException DynamicOutputShapeException FakeTensor
        torch._subclasses.fake_tensor: FakeTensorMode
    """,
    "functional_tensors": """
        FunctionalTensorMode(): _tokens
        torch.Tensor: _make_wrapper_subclass
        torch: _from_functional_tensor _functionalize_are_all_mutations_hidden_from_autograd
        torch: _functionalize_are_all_mutations_under_no_grad_or_inference_mode _functionalize_has_data_mutation
        torch: _functionalize_has_metadata_mutation _functionalize_unsafe_set
        torch: _functionalize_was_inductor_storage_resized _functionalize_was_storage_changed _sync
        torch._subclasses.functional_tensor: FunctionalTensor FunctionalTensorMode
    """,
    "graph_nodes": """
        torch.fx.Graph(): _insert
        torch.fx: Node._rename
        torch.fx.graph: _PyTreeCodeGen _PyTreeInfo
    """,
    "inductor": """
        torch._dynamo.utils: counters
        torch._functorch.partitioners: min_cut_rematerialization_partition
        torch._guards: TracingContext.try_get detect_fake_mode
        torch._inductor.async_compile: AsyncCompile.wakeup
        torch._inductor.compile_fx: _recursive_joint_graph_passes _recursive_pre_grad_passes[?] compile_fx_backward
        torch._inductor.compile_fx: compile_fx_forward compile_fx_inner create_compiler_config_extra
        torch._inductor.compile_fx: get_cpp_wrapper_config get_cuda_device_context get_inputs_devices
        torch._inductor.config: cpp_wrapper patch trace
        torch._inductor.debug: reset_provenance_globals
        torch._inductor.decomposition: select_decomp_table
        torch._inductor.lowering: lowerings make_fallback
        torch._inductor.output_code: CompiledFxGraph._time_taken_ns[?]
        torch._inductor.virtualized: V.set_fake_mode
    """,
    "inductor_memory": """
        torch._inductor.config: _pre_fusion_custom_pass patch
        torch._inductor.custom_graph_pass: CustomGraphPass
        torch._inductor.virtualized: V.graph.never_reuse_buffers.update[?]
    """,
    "modules": """
        torch.fx.Graph(): _codegen
        torch.fx._lazy_graph_module: _make_graph_module _use_lazy_graph_module
        torch.fx.graph_module: _forward_from_src
        torch.nn.Module(): _backward_hooks _backward_pre_hooks _buffers _forward_hooks _forward_pre_hooks _parameters
        torch.nn: Module._apply
        torch.nn.RNN(): _flat_weights
    """,
    "operators": """
        torch.Tensor: _dynamo_static_input_type[?]
        torch._C: DispatchKey.CompositeExplicitAutograd DispatchKey.CompositeImplicitAutograd
        torch._ops: OpOverload OpOverloadPacket OperatorBase
        torch.fx.Graph(): _tracer_cls
        torch.fx: Node._dynamo_source[?]
        torch.nn.Module(): _buffers _parameters
        torch.ops: aten._native_batch_norm_legit.default aten._unsafe_view.default
        torch.ops.aten.add.Tensor: _schema
    """,
    "oracle": """
        torch._functorch.aot_autograd: aot_function aot_module
    """,
    "partitioners": """
        torch._C: _DisableAutocast
        torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass: \
            remat_using_tags_for_fwd_loss_bwd_graph
        torch._functorch.config: cse patch
        torch._functorch.partitioners: default_partition min_cut_rematerialization_partition must_recompute
        torch.fx._lazy_graph_module: _use_lazy_graph_module
    """,
    "pytree": """
        torch.utils._pytree: TreeSpec arg_tree_leaves keystr tree_flatten tree_flatten_with_path tree_leaves
        torch.utils._pytree: tree_structure tree_unflatten
    """,
    "random_numbers": """
        torch.Generator: _cdata
        torch._decomp.decompositions_for_rng: PhiloxStateTracker.get_updated_fwd_offset
        torch._decomp.decompositions_for_rng: PhiloxStateTracker.record_state rng_decompositions
        torch._prims.rng_prims: run_and_save_rng_state
        torch._prims_common: CUDARngStateHelper.get_torch_state_as_tuple CUDARngStateHelper.set_new_offset
    """,
    "runtime": """
        torch.Tensor: _dynamo_weak_dynamic_indices[?]
        torch._C: _DisableAutocast _are_functorch_transforms_active _dispatch_tls_is_dispatch_key_included
        torch._C: _len_torch_dispatch_stack _parse_dispatch_key _set_grad_enabled
        torch._C._autograd: _get_current_graph_task_keep_graph _make_saved_tensor[?]
        torch._C._dynamo.eval_frame: set_code_exec_strategy
        torch._dynamo.types: FrameAction.SKIP FrameExecStrategy
        torch.autograd.forward_ad: _current_level
    """,
    "saved_tensor_hooks": """
        torch._C._autograd: _pop_saved_tensors_default_hooks _push_saved_tensors_default_hooks
        torch._C._autograd: _saved_tensors_hooks_disable _saved_tensors_hooks_enable
        torch._C._autograd: _saved_tensors_hooks_get_disabled_error_message _top_saved_tensors_default_hooks
        torch._functorch.config: saved_tensors_hooks_filtering_mode
    """,
    "scalar_tensors": """
        torch._dynamo.exc: TensorifyScalarRestartAnalysis
        torch._dynamo.symbolic_convert: TensorifyState.clear
        torch.fx: GraphModule._register_create_node_hook GraphModule._unregister_create_node_hook
        torch.fx.passes._tensorify_python_scalars: tensorify_python_scalars
        torch.ops: aten._local_scalar_dense.default
    """,
    "script_objects": """
        torch.ScriptObject: _type
        torch._library.fake_class_registry: FakeScriptObject has_fake_class maybe_to_fake_obj
        torch._library.opaque_object: is_opaque_reference_type
    """,
    "snapshotting": """
        torch._C: _storage_address
        torch._ops: HigherOrderOperator OpOverload OpOverloadPacket
        torch.fx: Node._args Node._kwargs
    """,
    "tensors": """
        torch.Tensor: _base _is_view _use_count _version
        torch.UntypedStorage: _cdata
        torch._C: DisableTorchFunctionSubclass _disabled_torch_function_impl
        torch._C._autograd: _unsafe_set_version_counter
        torch: _conj _debug_has_internal_overlap _mirror_autograd_meta_to _neg_view
        torch._prims_common: is_non_overlapping_and_dense_or_false
        torch.utils._python_dispatch: is_traceable_wrapper_subclass
    """,
    "told_of_compilation": """
        torch.compiler: _is_compiling_flag
        torch.distributions: Distribution._validate_args
    """,
    "tracers": """
        torch.fx._symbolic_trace: _is_fx_tracing_context[2.14-] _is_fx_tracing_flag[-2.13]
        torch.fx.experimental.proxy_tensor: _MakefxTracer _set_make_fx_tracer
        torch.fx.passes.regional_inductor: _needs_inductor_compile
    """,
}

MADE: dict[str, Callable[[], Any]] = {  # owners that must be created first to have their attributes
    "torch.fx.Graph()": torch.fx.Graph,
    "torch.nn.Module()": torch.nn.Module,
    "torch.nn.RNN()": lambda: torch.nn.RNN(1, 1, device="meta"),
    "FunctionalTensorMode()": lambda: _resolved("torch._subclasses.functional_tensor.FunctionalTensorMode")(),
    "get_metrics_context()": lambda: _resolved("torch._dynamo.utils.get_metrics_context")(),
}


class NameIsGone(ImportError):
    """The installed torch lacks a private name that this package uses."""


class Probe(MetaPathFinder):
    """Probes the names of a file of this folder when it is imported. Leaves finding the file to other finders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, file = fullname.rpartition(".")
        if package == __package__:
            probe(file)


def probe(file: str) -> None:
    """Raise NameIsGone unless torch has the private names that a file of this folder uses."""
    gone = [name for name in expected(file) if not _is_there(name)]
    if gone:
        names = gone[0] if len(gone) == 1 else f"{', '.join(gone[:-1])} and {gone[-1]}"
        raise NameIsGone(
            f"This is torch {torch.__version__}, which has no {names}; aotviz needs that, and supports torch "
            f"{_supported()}. Install a supported torch, or a newer aotviz."
        )


def expected(file: str, version: str = torch.__version__) -> Iterator[str]:
    """The dotted private names of torch that a file needs in a release, without those that it can do without."""
    for name, bounds in names(file):
        if bounds == "?":
            continue
        first, _, last = bounds.partition("-")
        before = bool(first) and release(version) < release(first)
        if not before and not (last and release(version) > release(last)):
            yield name


def names(file: str) -> Iterator[tuple[str, str]]:
    """(dotted name, releases) of the private names of torch that a file of this folder uses.

    >>> list(names("dispatch"))[0]
    ('torch._C.DispatchKey.Functionalize', '')
    """
    for line in filter(None, map(str.strip, NAMES.get(file, "").splitlines())):
        owner, found = line.split(": ")
        for name, bounds in re.findall(r"([\w.]+)(?:\[(.*?)\])?", found):
            yield f"{owner}.{name}", bounds


def _is_there(name: str) -> bool:
    try:
        _resolved(name)
    except AttributeError:
        return False
    return True


def _resolved(name: str) -> Any:
    """The object that a dotted name stands for. Imports the modules on the way. Raises AttributeError."""
    owner = next((owner for owner in MADE if name.startswith(owner)), "torch")
    path, found = owner, MADE.get(owner, lambda: torch)()
    for part in filter(None, name[len(owner) + 1 :].split(".")):
        path = f"{path}.{part}"
        try:
            found = _part(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                raise
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError as error:
                raise AttributeError(path) from error
    return found


_part = getattr


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version string.

    >>> release("2.13.0+cpu")
    (2, 13)
    """
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def has(feature: str) -> bool:
    """Whether the installed torch has a feature, by its name in `SINCE`."""
    return release(torch.__version__) >= SINCE[feature]


def check(version: str = torch.__version__) -> None:
    """Raise ImportError unless `version` is one that aotviz supports."""
    if release(version) not in SUPPORTED:
        raise ImportError(
            f"aotviz supports torch {_supported()}, and this is torch {version}. "
            "Install a supported torch, or a newer aotviz."
        )


def _supported() -> str:
    (first, last) = min(SUPPORTED), max(SUPPORTED)
    return f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"


check()
