"""What to do about a recompile: which cure, where it depends on the values and on whose name a value has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aotviz.explain.cures import backward_cures, guard_cures
from aotviz.explain.cures.registry import Advice

KV_CACHE = re.compile(r"\.layers\[\d+\]\.is_initialized$|past_key_values?\b")


def size(name: str, index: int, after: str, parameter: bool) -> Advice:
    if parameter:
        return guard_cures.SIZE_OF_PARAMETER.said(name=name)
    cure = guard_cures.SIZE_1 if after in ("0", "1", "0 or 1") else guard_cures.SIZE
    return cure.said(name=name, index=str(index))


def global_state(names: Sequence[str]) -> Advice:
    if "grad_mode" in names:
        return guard_cures.GRAD_MODE.said()
    if "num_threads" in names:
        return guard_cures.THREADS.said()
    if any(name.startswith("autocast") for name in names):
        return guard_cures.AUTOCAST.said()
    return guard_cures.SETTING.said()


def constant(name: str) -> Advice:
    """For a number that was compiled for each of several values."""
    return (guard_cures.ATTRIBUTE_NUMBER if "." in name else guard_cures.CONSTANT_NUMBER).said(name=name)


def value(name: str, before: str, from_global: bool, module: bool, training: bool) -> Advice:
    if training:
        return guard_cures.TRAINING.said()
    if before in ("True", "False"):
        return guard_cures.FLAG.said(name=name)
    if ".param_groups[" in name:
        return guard_cures.OPTIMIZER_NUMBER.said()
    number = before.replace(".", "", 1).replace("-", "").replace("e", "").isdigit()
    if number:
        of_module, of_globals, plain = guard_cures.MODULE_NUMBER, guard_cures.GLOBAL_NUMBER, guard_cures.NUMBER
        return (of_module if module else of_globals if from_global else plain).said(name=name)
    return (guard_cures.GLOBAL_VALUE if from_global else guard_cures.VALUE).said(name=name)


def taken_size(after: str) -> Advice:
    """For a part of a captured backward."""
    return (backward_cures.TAKEN_SIZE_1 if after in ("0", "1") else backward_cures.TAKEN_SIZE).said()
