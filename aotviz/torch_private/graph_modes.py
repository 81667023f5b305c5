"""Modes that Dynamo's graphs enter and leave by separate nodes.

The user wrote `with torch.inference_mode():`, and the graph has one node that enters the mode and one that leaves it.
After an error between the two, the mode would stay on for as long as the error's traceback is kept, and the gradients
of everything computed until then would be lost. So our copy of a graph tells `put_back` which modes it enters and
leaves, and whatever runs the graph, to trace it or in its place, runs it inside of `put_back`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from aotviz.torch_private.tracers import swapped

_thread = threading.local()  # .entered: the modes that the running graph has entered and not left, in `put_back`


def _entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    def entered(*args: Any) -> Any:
        mode = enter(*args)
        getattr(_thread, "entered", []).append(mode)
        return mode

    entered.__name__ = entered.__qualname__ = enter.__name__
    return entered


def _leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
    def left(mode: Any) -> Any:
        known = getattr(_thread, "entered", [])
        known[:] = (one for one in known if one is not mode)
        return leave(mode)

    left.__name__ = left.__qualname__ = leave.__name__
    return left


_OURS = {
    **{enter: _entering(enter) for enter in (_enter_autocast, _enter_inference_mode)},
    **{leave: _leaving(leave) for leave in (_exit_autocast, _exit_inference_mode)},
}


def has_modes(graph: fx.Graph) -> bool:
    return any(graph.find_nodes(op="call_function", target=target) for target in _OURS)


def follow(graph: fx.Graph) -> None:
    """Let the nodes of this graph tell `put_back` what they enter and leave."""
    for target, ours in _OURS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            node.target = ours


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """If the block raises, leave the modes that its graph has entered, and set grad mode to what it was before.

    To leave inference mode also sets autograd's threads as they were when it was entered, and a trace turns them off.
    """
    grad_mode, has_threads = torch.is_grad_enabled(), torch.autograd.is_multithreading_enabled()
    entered: list[Any] = []
    with swapped(_thread, entered=entered):
        try:
            yield
        except BaseException:
            for mode in reversed(entered):
                mode.__exit__(None, None, None)
            torch.set_grad_enabled(grad_mode)
            torch.autograd.set_multithreading_enabled(has_threads)
            raise
