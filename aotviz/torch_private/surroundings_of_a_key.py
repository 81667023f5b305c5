"""What a compilation depends on besides its graph: torch's settings, modes and switches, and the machine.

Each function returns text that is the same in every process with the same surroundings. What is fixed for a process is
found once.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx.experimental import _config as shapes_config
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils import _device

from aotviz.torch_private import configs

MODULES: Mapping[str, Any] = {**configs.MODULES, "torch.fx.experimental._config": shapes_config}

# The switches of backends that change what an operator computes, or which code Inductor makes for it.
_SWITCHES = (
    "_get_cpu_allow_fp16_reduced_precision_reduction _get_cublas_allow_bf16_reduced_precision_reduction "
    "_get_cublas_allow_fp16_accumulation _get_cublas_allow_fp16_reduced_precision_reduction _get_cudnn_benchmark "
    "_get_cudnn_deterministic _get_cudnn_enabled _get_cudnn_sdp_enabled _get_fa3_sdp_enabled _get_flash_sdp_enabled "
    "_get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled _get_mem_efficient_sdp_enabled "
    "_get_mkldnn_deterministic _get_mkldnn_enabled _get_nnpack_enabled _get_overrideable_sdp_enabled "
    "_get_sdp_priority_order"
).split()
_PRECISIONS = [("generic", "all"), *((b, o) for b in ("cuda", "mkldnn") for o in ("all", "matmul", "conv", "rnn"))]
_OF_CPU = (
    "_is_avx2_supported _is_avx512_supported _is_avx512_bf16_supported _is_amx_tile_supported _is_amx_fp16_supported"
).split()


def settings(module: str) -> Iterator[tuple[str, Any, bool]]:
    """(name, value, whether it is not the default) of each setting of a config module, without deprecated aliases."""
    held = MODULES[module]
    entries = held._config
    for name, value in sorted(held.get_config_copy().items()):
        entry = entries[name]
        if entry.alias is None and not getattr(entry, "deprecated", False):
            yield name, value, value is not entry.default and value != entry.default


def grad_mode() -> str:
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    multithreaded = torch.autograd.is_multithreading_enabled()
    views = torch._C._is_view_replay_enabled()
    found = {"grad": grad, "inference mode": inference, "multithreading": multithreaded, "view replay": views}
    return _lines(found)


def autocast() -> str:
    """The state of autocast, by device type; "off" if it is off everywhere."""
    kinds = [kind for kind in torch._C._autocast_supported_devices() if torch.is_autocast_enabled(kind)]
    if not kinds:
        return "off"
    caches = "" if torch.is_autocast_cache_enabled() else ", no cache"
    return ", ".join(f"{kind} {torch.get_autocast_dtype(kind)}" for kind in kinds) + caches


def deterministic() -> str:
    on, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    return _lines({"deterministic": on, "only warns": warn, "fills uninitialized memory": fills})


def defaults() -> str:
    """The dtype and device of new tensors."""
    chosen = [mode.device for mode in function_modes() if isinstance(mode, _device.DeviceContext)]
    device = chosen[-1] if chosen else _device.CURRENT_DEVICE
    return _lines({"default dtype": torch.get_default_dtype(), "default device": device})


def switches() -> str:
    """Precision of matrix products, and what torch.backends switches."""
    found = {"float32 matmul precision": torch.get_float32_matmul_precision()}
    found |= {name[5:]: read() for name in _SWITCHES if (read := getattr(torch._C, name, None))}
    precision = torch._C._get_fp32_precision_getter
    found |= {f"fp32 precision of {backend} {op}": precision(backend, op) for backend, op in _PRECISIONS}
    return _lines(found)


def _lines(found: Mapping[str, Any]) -> str:
    """A line for each, so that a miss names the one that differs."""
    return "\n".join(f"{name} = {value}" for name, value in found.items())


def active_modes() -> list[str]:
    """The classes of the torch dispatch and torch function modes of this thread, without that of a default device."""
    dispatch = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
    functions = [mode for mode in function_modes() if not isinstance(mode, _device.DeviceContext)]
    return [type(mode).__qualname__ for mode in (*dispatch, *functions)]


def threads() -> str:
    return f"{torch.get_num_threads()} threads"


@functools.lru_cache(1)
def processor() -> str:
    of_torch = [name for name in _OF_CPU if getattr(torch.cpu, name, bool)()]
    found = ", ".join(name[4:-10] for name in of_torch)
    return f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {found}"


@functools.lru_cache(64)
def accelerator(kind: str, index: int | None) -> str:
    """What a device is: its name and its capability."""
    if kind in ("cpu", "meta"):
        return ""
    module: Any = getattr(torch, kind, None)
    try:
        if kind == "cuda":
            about: Any = torch.cuda.get_device_properties(index or 0)
            return f"{about.name} {about.major}.{about.minor}, {about.multi_processor_count} units"
        return f"{kind} {module.get_device_name(index or 0)}"
    except (AssertionError, AttributeError, RuntimeError):
        return f"{kind}, not available"


@functools.lru_cache(1)
def versions_of_torch() -> str:
    found = torch.version
    built = hashlib.blake2b(torch.__config__.show().encode(), digest_size=6).hexdigest()
    return f"{torch.__version__} {found.git_version}, CUDA {found.cuda}, ROCm {found.hip}, build {built}"


@functools.lru_cache(1)
def version_of_python() -> str:
    return f"{sys.implementation.cache_tag} {platform.python_version()}"
