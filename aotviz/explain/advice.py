"""What to do about a recompile: which cure, where it depends on the values and on whose name a value has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aotviz.explain.cures import backward_cures, guard_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.explanation import listed
from aotviz.recording.spoken import spoken

OF_TENSORS = {  # a fact of a tensor that changed
    "dtype": guard_cures.DTYPE,
    "ndim": guard_cures.RANK,
    "device": guard_cures.DEVICE,
    "requires_grad": guard_cures.REQUIRES_GRAD,
}
OF_MODULES = {  # the same, where the tensor is a parameter or a buffer
    "dtype": guard_cures.CONVERTED,
    "device": guard_cures.CONVERTED,
    "requires_grad": guard_cures.FROZEN,
}
MODULES_CHANGED = frozenset(OF_MODULES.values())
LIFTS = {  # a cure -> the cures of the other guards that it lifts
    guard_cures.SIZES: {guard_cures.SIZE},
    guard_cures.SIZE_OF_PARAMETER: {guard_cures.SIZE, guard_cures.SIZE_OF_PARAMETER},
    guard_cures.FROZEN: {guard_cures.FROZEN},
    guard_cures.GRADIENT: {guard_cures.GRADIENT},
    guard_cures.CONVERTED: {guard_cures.CONVERTED, guard_cures.DTYPE, guard_cures.DEVICE},
}
ITS_TENSOR = re.compile(r"\._(?:parameters|buffers)\b")
KV_CACHE = re.compile(r"\.layers\[\d+\]\.is_initialized$|past_key_values?\b")
CYCLED = re.compile(r"\['(?:betas|momentum)'\]")  # of a group of an optimizer's parameters
OF_DEFAULTS = re.compile(r"\.__(?:kw)?defaults__\b")
MOST_MARKS = 4  # in an advice
OF_NUMPY = "___from_numpy("  # how Dynamo's expression for a value of NumPy begins: it takes it for a tensor


def size(source: str, index: int, before: str, after: str, parameter: bool) -> Advice:
    """For a dimension of the tensor that Dynamo calls `source`."""
    name = spoken(source)
    if "._buffers[" in source:
        return guard_cures.SIZE_OF_BUFFER.said(name=name)
    if parameter:
        return guard_cures.SIZE_OF_PARAMETER.said(name=name)
    is_odd = [one in ("0", "1", "0 or 1") for one in (before, after)]
    of_1 = guard_cures.LAST_BATCH if index == 0 and is_odd[1] and after != "0" else guard_cures.SIZE_1
    cure = of_1 if any(is_odd) else guard_cures.SIZE
    return cure.said(name=name, index=str(index))


def equal_by_chance(sizes: Sequence[str], varying: Sequence[str]) -> Advice:
    """For sizes that torch took for one (duck sizing), of which some vary: "x.shape[0]"."""
    marks = [_mark(*name.removesuffix("]").split(".shape[")) for name in varying]
    return guard_cures.DUCK.said(sizes=listed([f"`{size}`" for size in sizes]), marks=listed(marks))


def _mark(name: str, index: str) -> str:
    return f"`torch._dynamo.mark_dynamic({name}, {index})`"


def sizes(of_tensors: Mapping[str, Sequence[int]]) -> Advice:
    """For sizes that vary: tensor -> dimensions.

    >>> print(sizes({"x": [0], "y": [0, 1]}))  # doctest: +ELLIPSIS
    If these sizes vary, mark all ...: `torch._dynamo.mark_dynamic(x, 0)` and `torch._dynamo.mark_dynamic(y, [0, 1])`...
    """
    dimensions = {name: str([*found] if len(found) > 1 else found[0]) for name, found in of_tensors.items()}
    if len(dimensions) == 1:
        [(name, index)] = dimensions.items()
        return guard_cures.SIZE.said(name=name, index=index)
    marks = [_mark(name, index) for name, index in dimensions.items()]
    if len(marks) > MOST_MARKS:
        marks = [*marks[:MOST_MARKS], f"{len(marks) - MOST_MARKS} more"]
    return guard_cures.SIZES.said(marks=listed(marks)) if marks else NO_ADVICE


def tensor(fact: str, source: str, before: str) -> Advice:
    """For a fact of the tensor, or array of NumPy, that Dynamo calls `source`."""
    if fact == "dtype" and source.startswith(OF_NUMPY):
        return guard_cures.DTYPE_OF_ARRAY.said(name=spoken(source), before=before)
    cure = (OF_MODULES if ITS_TENSOR.search(source) else {}).get(fact, OF_TENSORS[fact])
    return cure.said(name=spoken(source), before=before)


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
        cycled = CYCLED.search(name)
        return (guard_cures.OPTIMIZER_MOMENTUM if cycled else guard_cures.OPTIMIZER_NUMBER).said()
    if name.endswith(".parametrize._cache_enabled"):
        return guard_cures.PARAMETRIZED.said()
    if OF_DEFAULTS.search(name):
        return guard_cures.DEFAULT_NUMBER.said()
    number = before.replace(".", "", 1).replace("-", "").replace("e", "").isdigit()
    if number:
        of_module, of_globals, plain = guard_cures.MODULE_NUMBER, guard_cures.GLOBAL_NUMBER, guard_cures.NUMBER
        return (of_module if module else of_globals if from_global else plain).said(name=name)
    of_module, of_globals, plain = guard_cures.MODULE_VALUE, guard_cures.GLOBAL_VALUE, guard_cures.VALUE
    return (of_module if module else of_globals if from_global else plain).said(name=name)


def taken_size(after: str) -> Advice:
    """For a part of a captured backward."""
    return (backward_cures.TAKEN_SIZE_1 if after in ("0", "1") else backward_cures.TAKEN_SIZE).said()
