"""The one way in: what every door to the pipeline has in common while it traces a program of the user's.

One compilation runs at a time, and knows that it does. Whatever the traced function does to Python's objects is undone
afterwards, whether the trace ends or fails: attributes, variables, containers, random generators, and the tensors of
the trace that it put anywhere else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from aotviz import captured, sessions
from aotviz.ir.forms import Request
from aotviz.tracing import leaks

lock = threading.RLock()  # a trace changes modes of the process and swaps a module's tensors: one at a time


@contextlib.contextmanager
def tracing(request: Request) -> Iterator[None]:
    """Around the stages that trace the program of `request`.

    Raises:
        Refused: "argument is changed", "tensor is kept", "random state inside".
    """
    roots = (request.fn, request.root, *request.args, *request.kwargs.values())
    with lock, sessions.tracing(), contextlib.ExitStack() as kept:
        kept.enter_context(leaks.undone(request.name, roots))
        kept.enter_context(captured.attributes_kept(request.root, request.name))
        if not request.is_graph:
            kept.enter_context(captured.names_kept(request))
            kept.enter_context(captured.draws_kept(request))
        yield
