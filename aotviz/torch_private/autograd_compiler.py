"""torch's compiled autograd. Importing this file loads it, which takes a while: import it only where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo.compiled_autograd import AutogradCompilerInstance, _disable

from aotviz.torch_private.runtime import skipped

Method = Callable[..., Any]
switched_off = _disable


def wrap_methods(
    node: Callable[[Method], Method], hook: Callable[[Method], Method], backward: Callable[[Method], Method]
) -> None:
    """Wrap the methods that it calls for each node, each hook on a tensor, and each backward of a Function."""
    kind: Any = AutogradCompilerInstance
    kind.set_node_origin = skipped(node(AutogradCompilerInstance.set_node_origin))
    kind.tensor_pre_hook = skipped(hook(AutogradCompilerInstance.tensor_pre_hook))
    kind.cpp_tensor_pre_hook = skipped(hook(AutogradCompilerInstance.cpp_tensor_pre_hook))
    kind.proxy_call_backward = skipped(backward(AutogradCompilerInstance.proxy_call_backward))
