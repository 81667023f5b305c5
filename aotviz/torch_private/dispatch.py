"""Layers between a call of an operator and its code: modes, the Python dispatcher, transforms."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

import torch
from torch import _tensor_str
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._dispatch.python import no_python_dispatcher as no_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes

without_modes: Callable[[], contextlib.AbstractContextManager[None]] = _disable_current_modes
"""Makes a context in which operators run on real tensors, even if a trace is open."""


def is_tracing() -> bool:
    """Whether calls are currently recorded by the trace of a function."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None


def a_compiler_traces() -> bool:
    """Whether torch or aotviz traces: a mode of fake tensors, proxies or functionalization is active."""
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.PROXY, keys.FUNCTIONAL))


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """The frames that an error, its causes and contexts keep alive together with their variables."""
    met: list[BaseException] = [error]
    for one in met:
        yield from (frame for frame, _ in traceback.walk_tb(one.__traceback__))
        others = (other for other in (one.__cause__, one.__context__) if other is not None)
        met += [other for other in others if not any(other is known for known in met)]


@contextlib.contextmanager
def prints_ended() -> Iterator[None]:
    """End what an error inside leaves of torch's `print` of a tensor. Its guard would live as long as the error's
    traceback, and then set the dispatcher of that time again: no operator would record gradients from then on."""
    try:
        yield
    except Exception as error:
        keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        with torch._C._ForceDispatchKeyGuard(*keys):
            for frame in frames_of(error):
                if frame.f_code is _tensor_str._str.__code__:
                    frame.clear()
        raise


@contextlib.contextmanager
def leaving_inference_mode(with_views: bool) -> Iterator[None]:
    """Without inference mode and grad mode. `with_views`: autograd makes views of the results of operators, also inside
    one that is made of others, where the key that does so has been left out."""
    key = torch._C.DispatchKey.ADInplaceOrView
    before = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    with torch.inference_mode(False), torch.no_grad():
        if with_views:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        try:
            yield
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, before)
