"""The modules of torch.nn, from torch's `module_db`: parameters and buffers are lifted, gradients of all compared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.oracle import compare
from tests.oracle.compare import Setup, Trial
from tests.oracle.sweep_ops import copies

from ..cases import Case, program_case, skipped

TITLE = "Modules of torch.nn"
MOST = 12  # inputs of a module in one mode; a transformer layer alone has hundreds
ABOUT = f"""The first {MOST} float32 inputs of each module in torch's `module_db`, in training mode and in evaluation
mode. Each case runs forward and backward through `aot_module`. The comparison includes gradients of parameters and
mutations of buffers."""

_INFOS = {info.name.removeprefix("nn."): info for info in module_db if torch.float32 in info.supported_dtypes("cpu")}
_CANDIDATES = {"ours": lambda: compare.aot_module("ours"), "torch": lambda: compare.aot_module("torch")}


def groups() -> list[str]:
    return list(_INFOS)


def cases(group: str) -> Iterator[Case]:
    for key, trial in trials(group):
        yield program_case(key, trial, _CANDIDATES) if trial else skipped(key, "not a plain strided tensor")


def trials(group: str, most: int = MOST) -> Iterator[tuple[str, Trial | None]]:
    """The first inputs of a module in each mode, by key; None for those that are no plain strided tensors."""
    info = _INFOS[group]
    for training in (True, False):
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        for k, sample in enumerate(islice(inputs, most)):
            if sample.forward_input is None:
                continue
            key = f"{group}#{'train' if training else 'eval'}{k}"
            flat, spec = tree_flatten((sample.forward_input.args, sample.forward_input.kwargs))
            plain = all(x.layout is torch.strided for x in flat if isinstance(x, torch.Tensor))
            yield key, _program(key, info.module_cls, sample.constructor_input, flat, spec, training) if plain else None


def _program(key: str, kind: Any, constructor: Any, flat: list[Any], spec: Any, training: bool) -> Trial:
    def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensors = iter(copies([x for x in flat if isinstance(x, torch.Tensor)]))
        args, kwargs = tree_unflatten([next(tensors) if isinstance(x, torch.Tensor) else x for x in flat], spec)
        return tuple(args), kwargs

    def build() -> Setup:
        torch.manual_seed(0)
        module = kind(*constructor.args, **constructor.kwargs).train(training)
        if any(isinstance(t, UninitializedTensorMixin) for t in (*module.parameters(), *module.buffers())):
            args, kwargs = arguments()
            with torch.no_grad():
                module(*args, **kwargs)  # a lazy module finds its shapes in its first call
        args, kwargs = arguments()
        return Setup(module, args, kwargs, watch={**dict(module.named_parameters()), **dict(module.named_buffers())})

    return Trial(key, (build,), f"# module_db {key}")
