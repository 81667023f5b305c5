"""The record types that torch 2.11 to 2.15 writes to its structured trace, and how the reader treats them.

A record of another type is kept as an artifact and counted as unknown. Artifacts are distinguished by name. Some names
have a variable part, such as a function's name; these are listed as patterns.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Printed graphs: record type, or "artifact/" and the artifact's name -> (stage, role; "?": find it from the text).
GRAPHS = {
    "dynamo_output_graph": ("dynamo", "dynamo"),
    "exported_program": ("export", "export"),
    "artifact/make_fx_fail_partial": ("traced until it failed", "partial"),
    "compiled_autograd_graph": ("compiled autograd", "compiled autograd"),
    "artifact/compiled_autograd_graph_pre_reordering": ("before reordering", "compiled autograd"),
    "optimize_ddp_split_graph": ("DDP split", "dynamo"),
    "optimize_ddp_split_child": ("DDP split", "part"),
    "artifact/before_pre_grad_graph": ("before pre-grad passes", "dynamo"),
    "artifact/after_pre_grad_graph": ("pre-grad passes", "dynamo"),
    "inductor_pre_grad_graph": ("pre-grad passes", "dynamo"),
    "aot_joint_graph": ("joint", "joint"),
    "artifact/before_joint_graph": ("before joint passes", "?"),
    "artifact/after_joint_graph": ("joint passes", "?"),
    "aot_forward_graph": ("partition", "forward"),
    "aot_backward_graph": ("partition", "backward"),
    "aot_inference_graph": ("inference", "inference"),
    "artifact/aot_inference_graph_after_hop_passes": ("inference passes", "inference"),
    "artifact/before_post_grad_graph": ("before post-grad passes", "?"),
    "artifact/inductor_post_grad_graph": ("post-grad passes", "?"),
    "inductor_post_grad_graph": ("post-grad passes", "?"),
}

# Which nodes of the post-grad graph each Inductor kernel computes; logged only with INDUCTOR_PROVENANCE=1.
KERNEL_NODES = "artifact/inductor_provenance_tracking_node_mappings"

# Generated code: record type -> the stage whose `code` it becomes.
WRAPPERS = """
    aot_autograd_runtime_wrappers runtime_wrapper_orchestration output_alias_wrapper mutation_epilogue
    effect_tokens_wrapper functionalized_rng_wrapper dedup_wrapper synthetic_base_wrapper backward_prologue
    backward_epilogue compiled_function_forward compiled_function_backward compiled_fn_wrapper debug_assert_wrapper
    backward_subclass_unwrap backward_subclass_wrapper subclass_wrapper
"""
CODE = {
    "inductor_output_code": "lower",
    KERNEL_NODES: "lower",
    "graph_dump": "lower",
    "artifact/fx_graph_runnable": "runnable",
    **{f"artifact/{name}": "wrapper" for name in WRAPPERS.split()},
}

SHAPES = frozenset(
    """
    create_symbol create_unbacked_symbol expression_created guard_added guard_added_fast
    guard_on_data_dependent_error mismatched_fake_kernel missing_fake_kernel propagate_real_tensors
    propagate_real_tensors_provenance symbolic_shape_specialization
    """.split()
)
METRICS = frozenset(
    """
    compilation_metrics bwd_compilation_metrics aot_autograd_backward_compilation_metrics compilation_metrics_runtime
    bwd_compilation_metrics_runtime
    """.split()
)
CACHES = re.compile(
    r"(?P<cache>aotautograd(?=_cache_(?:hit|miss|bypass)$)|fx_graph|fx_graph_bundled(?=_cache_(?:hit|miss)$)"
    r"|(?:dynamo|precompile)(?=_cache_bypass$))_cache_(?P<outcome>hit|miss|bypass|disabled)"
)
OTHER = frozenset(
    """
    artifact chromium_event describe_source describe_storage describe_tensor dump_file dynamo_cpp_guards_str
    dynamo_guards dynamo_start export link stack str
    """.split()
)
TYPES = frozenset(name for name in (*GRAPHS, *CODE) if "/" not in name) | SHAPES | METRICS | OTHER

# Artifacts that are not in the tables above and match no pattern. A watch writes those of aotviz, torch the rest.
ARTIFACTS = frozenset(name.removeprefix("artifact/") for name in (*GRAPHS, *CODE) if "/" in name) | frozenset(
    """
    aotviz_failed_guards aotviz_left_out_of_export aot_forward_graph_fw_metadata aot_forward_graph_fw_subclass_metadata
    aot_joint_graph_sync_decision_cross_ranks aot_saved_tensors_hooks_graphs aotautograd_cache_pickle_failure
    compile_worker_sidecar_death compile_worker_status compiled_autograd_compile_reasons compiler_collective
    dynamo_cache_entries dynamo_cache_exception dynamo_error dynamo_graph_break_reason dynamo_side_effects
    eager_compile_backwards_failure fusion_regions_after fusion_regions_before fx_bucketing_passes_all_gather_buckets
    fx_bucketing_passes_reduce_scatter_buckets fx_interpreter_error fx_net_acc_splitter_finder_events graph_execution
    inductor_autotune_at_compile_time_code inductor_collective_schedule inductor_fx_passes_overlap_bucketing
    inductor_overlap_cyclic_extra_deps inductor_runtime_and_tensor_meta inductor_spmd_graph_mismatch
    invoke_subgraph_backward_duplicate min_cut_failed_edge_list min_cut_failed_fx_graph
    min_cut_failed_svg min_cut_information native_dsl_compile overlap_scheduling_graph_after
    overlap_scheduling_graph_before pge_profile_vs_analytical post_decomp_comms pre_bucketing_collective_sizes
    pre_bucketing_collective_sizes_after pre_bucketing_fsdp_collectives pre_decomp_comms recompile_reasons
    reorder_communication_preserving_peak_memory scheduler_nodes_before_comm_overlap sink_waits_iterative_info
    torch._functorch.config torch_version triton_kernel_info
    """.split()
)
PATTERNS = re.compile(
    r".*_(?:ORIGINAL|MODIFIED)_BYTECODE|(?:get|put)_.+_code_state|flex_gemm_.+|.+_(?:post|pre)_grad|(?:optimus|cff)_.+"
    r"|.+_ITERATIVE_RECOMPUTE_ERROR|.+_fused|fx_.*runtime_estimation.*|(?:before|after)_.+_(?:graph|pass)"
    r"|inductor_(?:triton_kernel_to_post_grad_nodes|provenance_tracking_.+)"
)


@lru_cache(4096)
def is_known(label: str) -> bool:
    """Whether torch is known to write records of this type. An artifact's type is "artifact/" and its name.

    >>> is_known("aot_joint_graph"), is_known("artifact/f_ORIGINAL_BYTECODE"), is_known("artifact/of a colleague")
    (True, True, False)
    """
    kind, _, name = label.partition("/")
    if kind != "artifact":
        return label in TYPES
    return name in ARTIFACTS or bool(CACHES.fullmatch(name) or PATTERNS.fullmatch(name))
