"""A short way through the proxy mode, for the operators of which nearly all graphs consist.

torch's `proxy_call` flattens and rebuilds the arguments of each operator several times, asks about decompositions,
constants and symbolic sizes, and computes the contiguity of each result in Python. For an operator of ATen that writes
nothing, whose arguments are fake tensors of the trace and constants, and whose result is a tensor of fixed sizes, all
these questions have one answer. Such an operator is recorded here, with the node that torch would make; any other is
left to torch.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, _ProxyTensor, set_original_aten_op
from torch.fx.passes.shape_prop import TensorMetadata

from aotviz.torch_private import versions

CONSTANTS = {bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout}
_NEVER = {  # that torch treats one by one
    torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.is_nonzero.default,
}  # fmt: skip


class _LeftToTorch(Exception):
    """An argument is neither a fake tensor of the trace nor a constant."""


def record_ordinary(mode: ProxyTorchDispatchMode) -> types.MethodType:
    """Let `mode` record ordinary operators by itself. Returns the method, which refers to the mode."""
    by_torch = mode.__torch_dispatch__
    tracer: Any = mode.tracer
    tracked: Any = tracer.tensor_tracker
    names: dict[Any, str] = {}  # operator -> what its nodes are called; "" if it is left to torch
    held = versions.has("the proxy mode holds the decompositions")
    of_module: Any = vars(proxy_tensor)

    def dispatch(
        self: ProxyTorchDispatchMode, func: Any, kinds: Any, args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        name = names.get(func)
        if name is None:
            name = names[func] = _name(func, tracer.graph) if not self.emulate_precision_casts else ""
        table = self.decomposition_table if held else of_module["CURRENT_DECOMPOSITION_TABLE"]
        if not name or func in table:
            return by_torch(func, kinds, args, kwargs)
        try:
            nodes = tuple([_node(value, tracked) for value in args])
            by_name = {key: _node(value, tracked) for key, value in kwargs.items()} if kwargs else {}
        except _LeftToTorch:
            return by_torch(func, kinds, args, kwargs)
        with set_original_aten_op(func):
            node = tracer.create_node("call_function", func, nodes, by_name, name)
            lazily, tracer.enable_thunkify = tracer.enable_thunkify, True
            try:
                result = func(*args, **kwargs or {})
            finally:
                tracer.enable_thunkify = lazily
            proxy = tracer.proxy(node)
            if _is_ordinary(result):
                tracked[result] = _ProxyTensor(proxy, None)
                node.meta["val"] = fast_detach(result.fake_mode, result)
                node.meta["tensor_meta"] = _metadata(result)
            else:
                proxy_tensor.track_tensor_tree(result, proxy, constant=None, tracer=tracer)
        return result

    vars(mode)["__torch_dispatch__"] = method = types.MethodType(dispatch, mode)
    return method


def _name(func: Any, graph: fx.Graph) -> str:
    """What the nodes of an operator are called, or "" if it is left to torch."""
    if not isinstance(func, OpOverload) or func.namespace not in ("aten", "prims") or func in _NEVER:
        return ""
    if func._schema.is_mutable or torch.Tag.data_dependent_output in func.tags:
        return ""
    is_known = torch._C._dispatch_has_kernel(func.name())  # `aten.sym_size` is not, and torch 2.11 raises below for it
    if not is_known or func._can_decompose():
        return ""
    return graph._target_to_str(func.overloadpacket.__name__)


def _node(value: Any, tracked: Any) -> Any:
    kind = type(value)
    if kind is FakeTensor:
        slot = tracked.get(value)
        if slot is None or slot.constant is not None:  # torch computes with constants
            raise _LeftToTorch
        return slot.proxy.node
    if kind in CONSTANTS:
        return value
    if kind is list or kind is tuple:
        return kind([_node(part, tracked) for part in value])
    raise _LeftToTorch


def _is_ordinary(result: Any) -> bool:
    if type(result) is not FakeTensor or result._has_symbolic_sizes_strides:
        return False
    sizes = result.fake_mode.shape_env
    return (
        result.layout is torch.strided
        and not result.is_quantized
        and (sizes is None or not sizes.pending_fresh_unbacked_symbols)
    )


def _metadata(result: torch.Tensor) -> TensorMetadata:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = formats.get(result.dim())
    if result.is_contiguous():
        layout = torch.contiguous_format
    elif layout is not None and not result.is_contiguous(memory_format=layout):
        layout = None
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), layout, is_quantized=False, qparams={}
    )
