"""torch's settings of AOTAutograd, and what each of them means in aotviz.

The tables have every setting of `torch._functorch.config`, and those settings of Inductor and Dynamo that torch's
AOTAutograd reads. A setting in HONOURED becomes an option of a compilation, or is read by a part of torch that aotviz
uses unchanged. A setting in WARNED has no effect in aotviz although it should: if it is changed, aotviz warns once and
names it. The settings in MEANS_NOTHING are irrelevant here, for the reasons that the table gives.
"""

from __future__ import annotations

import warnings
from typing import Any

from aotviz.torch_private import configs

_NO_CACHE = "it is about torch's AOTAutograd cache; aotviz has a cache of its own"


def _all(names: str, what: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), what)


HONOURED = {  # setting -> what honours it
    "torch._functorch.config": {
        **_all(
            "activation_memory_budget activation_memory_budget_require_full_coverage "
            "activation_memory_budget_runtime_estimator activation_memory_budget_solver "
            "activation_offload_cpu_gpu_bw activation_offload_separate_stream activation_offload_sink_wait "
            "activation_reload_prefetch aggressive_recomputation ban_recompute_long_fusible_chains "
            "ban_recompute_materialized_backward ban_recompute_not_in_allowlist ban_recompute_reductions "
            "ban_recompute_used_far_apart cse debug_partitioner enable_activation_offloading is_non_builtin_to_include "
            "max_dist_from_bw memory_budget_pareto_dir recompute_views torch_compile_graph_format "
            "treat_parameters_as_free_to_save unsafe_allow_optimization_of_collectives "
            "unsafe_treat_script_objects_as_zero_size visualize_memory_budget_pareto _sync_decision_cross_ranks",
            "torch's partitioners read it",
        ),
        **_all(
            "fake_tensor_allow_meta fake_tensor_allow_unsafe_data_ptr_access fake_tensor_crossref "
            "fake_tensor_prefer_device_type fake_tensor_propagate_real_tensors "
            "generate_fake_kernels_from_real_mismatches",
            "torch's fake tensors read it",
        ),
        "backward_pass_autocast": "use the option backward_autocast; the default is no autocast, as in eager",
        "custom_op_default_layout_constraint": "torch's trace and Inductor read it",
        "debug_assert": "option debug",
        "decompose_custom_triton_ops": "torch's trace reads it",
        "donated_buffer": "option donate_buffers",
        "force_non_lazy_backward_lowering": "option compile_backward_now",
        "functionalize_rng_ops": "option functionalize_rng_ops",
        "graphsafe_rng_functionalization": "option graphsafe_rng",
        "joint_custom_pass": "option joint_custom_pass",
        "remat_using_tags_for_fwd_loss_bwd_graph": "option remat_using_tags",
        "saved_tensors_hooks_filtering_mode": "the stage 'saved hooks'",
        "selective_decompose": "option selective_decompose",
    },
    "torch._inductor.config": {
        **_all("cpp_wrapper custom_partitioner_fn fx_wrapper", "the compilers of torch_private/inductor.py"),
        "fx_graph_cache": "Inductor reads it",
        "post_grad_fusion_options": "torch's partitioners read it",
        "selective_decompose": "option selective_decompose",
        "triton.cudagraphs": "option graphsafe_rng, and Inductor reads it",
    },
    "torch._dynamo.config": {
        **_all("caching_precompile strict_precompile", "Dynamo, which keeps our graphs too: frontends/precompiled.py"),
    },
}
WARNED = {  # setting -> what aotviz does instead
    "torch._functorch.config": {
        "enable_complex_wrapper": "complex tensors are traced as they are",
        "error_on_custom_op_aliasing": "aotviz does not check whether results of a custom operator share memory",
        "static_weight_shapes": "parameters and buffers have fixed sizes",
    },
    "torch._inductor.config": {"freezing": "parameters stay inputs"},
    "torch._dynamo.config": {},
}
MEANS_NOTHING = {  # setting -> why
    "torch._functorch.config": {
        **_all(
            "autograd_cache_allow_custom_autograd_functions autograd_cache_normalize_inputs bundled_autograd_cache "
            "bypass_autograd_cache_key enable_autograd_cache enable_remote_autograd_cache force_autograd_cache "
            "strict_autograd_cache _sync_cache_decision_cross_ranks",
            _NO_CACHE,
        ),
        "check_custom_op_aliasing": "it is on by default; see error_on_custom_op_aliasing",
        "disable_guess_zero_tangent_for_mutated_input_subclass": "aotviz checks the gradient of such an input",
        "guess_tangent_strides_as_outputs": "tangents are expected with the strides of the outputs; others are copied",
        "unlift_effect_tokens": "aotviz passes no effect tokens to the compiler",
        "view_replay_for_aliased_outputs": "views are always replayed",
        "_save_config_ignore": "it is about the config itself",
        "_test_disable_functionalization": "only torch's tests set it; aotviz always functionalizes",
        "TYPE_CHECKING": "it is not a setting",
    },
    "torch._inductor.config": _all(
        "cudagraph_policy unsafe_marked_cacheable_functions unsafe_skip_cache_dynamic_shape_guards", _NO_CACHE
    ),
    "torch._dynamo.config": {
        "force_compile_during_fx_trace": "a call inside a trace is traced with it",
        "record_runtime_overhead": "it times torch's wrapper, and aotviz has its own",
    },
}
_told: set[str] = set()


def current() -> dict[str, Any]:
    """The fields of `Options` that torch's settings determine. Warns about changed settings that have no effect."""
    ignored = ((module, name, what) for module, known in WARNED.items() for name, what in known.items())
    for module, name, what in ignored:
        setting = f"{module}.{name}"
        if setting not in _told and configs.is_changed(module, name):
            _told.add(setting)
            warnings.warn(f"aotviz ignores torch's setting {setting}: {what}", stacklevel=2)
    found = configs.of_aot_autograd()
    autocast = found["backward_pass_autocast"]
    return {
        "functionalize_rng_ops": bool(found["functionalize_rng_ops"]),
        "selective_decompose": bool(found["selective_decompose"]),
        "remat_using_tags": bool(found["remat_using_tags_for_fwd_loss_bwd_graph"]),
        "donate_buffers": bool(found["donated_buffer"]),
        "compile_backward_now": bool(found["force_non_lazy_backward_lowering"]),
        "joint_custom_pass": found["joint_custom_pass"],
        "backward_autocast": tuple(autocast) if isinstance(autocast, list) else (),
        "debug": bool(found["debug_assert"]),
    }
