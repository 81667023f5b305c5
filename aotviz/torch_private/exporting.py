"""What `torch.export` tells a watch that it tells no log: the exported program, and when `forward` runs to be traced.

torch logs an export's program only with `TORCH_DTRACE`, which makes all of tracing slow. A watch gets the program
without it. torch restores the attributes that `forward` sets; `told` lets a watch look before that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch._logging import trace_structured
from torch.export import _trace

from aotviz.torch_private.tracers import swapped

_restoring = _trace._detect_attribute_assignment


def told(running: Callable[[torch.nn.Module], AbstractContextManager[None]]) -> AbstractContextManager[None]:
    """Inside this context, exports write their programs to torch's structured trace, and `running` of the module is
    entered where its `forward` runs to be traced (not with `strict=True`, for which Dynamo traces it)."""

    @contextlib.contextmanager
    def restored(module: torch.nn.Module) -> Iterator[None]:
        with _restoring(module), running(module):
            yield

    return swapped(_trace, dtrace_structured=trace_structured, _detect_attribute_assignment=restored)


def write(name: str, text: str) -> None:
    """Write an artifact of this name, in JSON, to torch's structured trace."""
    about = {"name": name, "encoding": "json"}
    trace_structured("artifact", lambda: about, payload_fn=lambda: text, expect_trace_id=False)
