"""Access to the settings of torch and of Inductor. `ir/torchs_settings.py` says what each means in aotviz."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._functorch import config
from torch._inductor import config as inductor_config
from torch._inductor import list_mode_options

MODULES: dict[str, Any] = {
    "torch._functorch.config": config,
    "torch._inductor.config": inductor_config,
    (DYNAMO := "torch._dynamo.config"): dynamo_config,
}


def is_changed(module: str, name: str) -> bool:
    """Whether this release has a setting, and its value is not the default."""
    entry = MODULES[module]._config.get(name)
    return entry is not None and getattr(MODULES[module], name) != entry.default


@contextlib.contextmanager
def patched(settings: Mapping[str, object]) -> Iterator[None]:
    """Settings by their whole names, such as "torch._dynamo.config.capture_scalar_outputs", for a while."""
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            module, _, setting = name.rpartition(".")
            stack.enter_context(MODULES[module].patch(**{setting: value}))
        yield


def of_aot_autograd() -> dict[str, Any]:
    """The settings that become options of aotviz, by torch's names."""
    return {
        "backward_pass_autocast": config.backward_pass_autocast,
        "debug_assert": config.debug_assert,
        "donated_buffer": config.donated_buffer,
        "force_non_lazy_backward_lowering": config.force_non_lazy_backward_lowering,
        "functionalize_rng_ops": config.functionalize_rng_ops,
        "joint_custom_pass": config.joint_custom_pass,
        "remat_using_tags_for_fwd_loss_bwd_graph": config.remat_using_tags_for_fwd_loss_bwd_graph,
        "selective_decompose": config.selective_decompose or inductor_config.selective_decompose,
    }


def caches_are_off() -> bool:
    """Torch's switch for all caches."""
    return bool(inductor_config.force_disable_caches)


def has_cuda_graphs() -> bool:
    """Whether Inductor makes CUDA graphs."""
    return bool(inductor_config.triton.cudagraphs)


def graphsafe_rng() -> bool:
    """Whether CUDA graphs are on, and so are generators that CUDA graphs can replay."""
    is_on = config.graphsafe_rng_functionalization and has_cuda_graphs()
    return bool(is_on and not inductor_config.fallback_random)


def for_inductor(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The config entries behind a `mode` and `options` of `torch.compile`.

    Raises:
        ValueError: Inductor has no such option or mode; the message names it.
        RuntimeError: torch rejects the type of a value.
    """
    modes = list(list_mode_options())
    if mode is not None and mode not in modes:
        raise ValueError(f"mode is {mode!r}; it can be {', '.join(map(repr, modes))}")
    known = names_of_inductor()
    for name in options:
        if name.replace("-", "_") not in known:
            near = " or ".join(map(repr, difflib.get_close_matches(name, known)))
            hint = f" Did you mean {near}?" if near else ""
            raise ValueError(
                f"{name!r} is not an Inductor setting.{hint} torch._inductor.list_options() lists all settings"
            )
    made: dict[str, Any] = torch._TorchCompileInductorWrapper(mode, dict(options), None).config
    return made


def names_of_inductor() -> frozenset[str]:
    """The names of all options of Inductor."""
    return frozenset(inductor_config.get_config_copy())
