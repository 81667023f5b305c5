"""torch's settings and environment variables as ingredients of a key, and those that are none, with the reasons.

An ingredient has the settings that differ from torch's defaults, by name, and a digest of all of them: some defaults
come from the environment. A setting that a release adds is part of the key until it is listed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aotviz.cache import bypasses
from aotviz.cache.content import Content, Uncacheable, digest
from aotviz.torch_private import surroundings_of_a_key as torchs

INDUCTOR, AOT, DYNAMO, SHAPES = (
    "torch._inductor.config",
    "torch._functorch.config",
    "torch._dynamo.config",
    "torch.fx.experimental._config",
)


def _all(names: str, why: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), why)


_LOGS = "it decides what is written to logs and files"
_CACHES = "it decides where compiled code is kept, not what it is"
_SPEED = "it decides how fast a compilation is, not what it results in"
_NONE = "it is not a setting"
_CAPTURE = "it decides how often and where Dynamo captures, and the key has the graph that it captured"
LEFT_OUT: Mapping[str, Mapping[str, str]] = {  # module -> setting -> why it is in no key
    INDUCTOR: {
        **_all(
            "disable_progress verbose_progress warn_mix_layout developer_warnings trace.enabled "
            "trace.save_real_tensors trace.debug_dir trace.debug_log trace.info_log trace.fx_graph "
            "trace.fx_graph_transformed trace.ir_pre_fusion trace.ir_post_fusion trace.output_code "
            "trace.graph_diagram trace.draw_orig_fx_graph trace.dot_graph_shape trace.log_url_for_graph_xform "
            "trace.compile_profile trace.upload_tar trace.log_autotuning_results "
            "trace.provenance_tracking_level trace.graph_diagram_format trace.orig_fx_graph_diagram_format "
            "log_tlparse autotune_num_choices_displayed torchinductor_worker_logpath autoheuristic_log_path "
            "enabled_metric_tables max_autotune_report_choices_stats",
            _LOGS,
        ),
        **_all(
            "fx_graph_cache fx_graph_remote_cache autotune_local_cache autotune_remote_cache "
            "bundled_autotune_remote_cache bundle_triton_into_fx_graph_cache global_cache_dir "
            "unsafe_skip_cache_dynamic_shape_guards "
            "unsafe_marked_cacheable_functions non_blocking_remote_cache_write sleep_sec_TESTING_ONLY "
            "enable_caching_generated_triton_templates",
            _CACHES,
        ),
        **_all(
            "compile_threads worker_start_method worker_suppress_logging quiesce_async_compile_pool "
            "quiesce_async_compile_time autotune_in_subproc",
            _SPEED,
        ),
        **_all("TYPE_CHECKING _save_config_ignore _cache_config_ignore_prefix _cache_config_factory_keys", _NONE),
    },
    AOT: {
        **_all("debug_partitioner visualize_memory_budget_pareto memory_budget_pareto_dir", _LOGS),
        **_all(
            "enable_autograd_cache enable_remote_autograd_cache autograd_cache_allow_custom_autograd_functions "
            "autograd_cache_normalize_inputs bundled_autograd_cache strict_autograd_cache force_autograd_cache "
            "bypass_autograd_cache_key",
            "it is about torch's own cache",
        ),
        "force_non_lazy_backward_lowering": "it decides when a backward is compiled, not what it is",
        **_all("TYPE_CHECKING _save_config_ignore", _NONE),
    },
    DYNAMO: {
        **_all(
            "verbose log_compilation_metrics debug_dir_root run_gc_after_compile base_dir log_file_name "
            "cprofile dynamo_profiler report_guard_failures record_compile_time_instruction_count "
            "record_runtime_overhead replay_record_enabled log_graph_in_out_metadata pt2_compile_id_prefix "
            "_custom_ops_profile",
            _LOGS,
        ),
        **_all(
            "recompile_limit accumulated_recompile_limit fail_on_recompile_limit_hit error_on_recompile "
            "suppress_errors minimum_call_count invalidate_compile_context_weakrefs automatic_dynamic_shapes "
            "assume_static_by_default",
            _CAPTURE,
        ),
        **_all("TYPE_CHECKING _save_config_ignore", _NONE),
        **_all("repro_after repro_level repro_forward_only repro_tolerance", "it is about reproductions of failures"),
    },
    SHAPES: {
        **_all(
            "print_specializations translation_validation translation_validation_timeout "
            "translation_validation_no_bisect check_shape_env_recorded_events validate_shape_env_version_key "
            "extended_debug_cpp extended_debug_create_symbol extended_debug_current_loc extended_debug_guard_added "
            "enrich_profiler_metadata",
            _LOGS,
        ),
    },
}
READ_WITHOUT_INDUCTOR = (  # by torch's partitioners and traces, and as options
    "enable_auto_functionalized_v2",
    "fallback_random",
    "post_grad_fusion_options",
    "selective_decompose",
    "test_configs.graphsafe_rng_func_ignores_fallback_random",
    "triton.cudagraphs",
    "unsafe_ignore_unsupported_triton_autotune_args",
)

# Environment variables that are read while a program is compiled, not when torch is imported.
READ_LATE = tuple(
    "ATEN_CPU_CAPABILITY CC CXX CI CONDA_PREFIX CPATH CPLUS_INCLUDE_PATH CUBLAS_WORKSPACE_CONFIG CUDACXX CUDA_HOME "
    "CUDA_PATH CUDA_VISIBLE_DEVICES HALIDE_INCLUDE HALIDE_LIB INDUCTOR_DISABLE_CUTLASS NVIDIA_TF32_OVERRIDE OMP_PREFIX "
    "ONEAPI_ROOT PYTORCH_REORDER_COLLECTIVES_LIMIT PYTORCH_ROCM_ARCH PYTORCH_SINK_WAITS_LIMIT TRITON_INTERPRET "
    "TRITON_LIBDEVICE_PATH TRITON_PTXAS_PATH TRITON_USE_META_WS".split()
)
_PREFIXES = ("TORCHINDUCTOR_", "TORCH_INDUCTOR_", "INDUCTOR_", "TORCHDYNAMO_", "TRITON_")
ENVIRONMENT_LEFT_OUT = {  # variable -> why it is in no key
    **_all("TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR TRITON_HOME TRITON_DUMP_DIR TRITON_OVERRIDE_DIR", _CACHES),
    **_all(
        "TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE TORCHINDUCTOR_AUTOGRAD_CACHE "
        "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE TORCHINDUCTOR_FORCE_DISABLE_CACHES "
        "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE TORCHINDUCTOR_REDIS_HOST TORCHINDUCTOR_REDIS_PORT "
        "TORCHINDUCTOR_REDIS_URL",
        _CACHES,
    ),
    **_all(
        "TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_WORKER_START TORCHINDUCTOR_WORKER_SUPPRESS_LOGGING "
        "TORCHINDUCTOR_AUTOTUNE_POOL_INACTIVITY_TIMEOUT",
        _SPEED,
    ),
    **_all(
        "TORCHINDUCTOR_PROVENANCE TORCHINDUCTOR_DUMP_LAUNCH_PARAMS TORCHINDUCTOR_DUMP_LAUNCH_TENSORS "
        "TORCHINDUCTOR_MM_LOGGING_FILE TORCHINDUCTOR_FLEX_ATTENTION_LOGGING_FILE TORCHINDUCTOR_CONV_LOGGING_FILE "
        "TORCHINDUCTOR_PATTERN_MATCH_DEBUG TORCHINDUCTOR_WRITE_MISSING_OPS INDUCTOR_WRITE_SCHEDULER_GRAPH "
        "TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION",
        _LOGS,
    ),
}


def of(module: str, patches: Mapping[str, Any] | None = None, only: tuple[str, ...] | None = None) -> str:
    """The settings of a config module, with `patches` of their values.

    Raises:
        Uncacheable: a setting is a function or an object of unknown content.
    """
    patches, left_out = patches or {}, LEFT_OUT[module]
    changed, everything = [], []
    content = Content()
    for name, value, is_changed in torchs.settings(module):
        if name in left_out or (only is not None and name not in only):
            continue
        if name in patches:
            value, is_changed = patches[name], True
        try:
            text = f"{name} = {content.value(value)}"
        except Uncacheable as error:
            raise bypasses.NO_VERSION(f"{module}.{name}: {error.reason}", error.where) from None
        everything.append(text)
        if is_changed:
            changed.append(text)
    return "\n".join([*changed, f"all {len(everything)}: {digest(chr(10).join(everything))}"])


def environment() -> str:
    """The environment variables that torch reads, if they are set."""
    found = os.environ
    names = {name for name in READ_LATE if name in found}
    names |= {name for name in found if name.startswith(_PREFIXES) and name not in ENVIRONMENT_LEFT_OUT}
    return "\n".join(f"{name}={found[name]}" for name in sorted(names))
