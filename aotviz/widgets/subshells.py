"""Lets a comm be answered while a cell runs.

JupyterLab sends what a widget asks to a subshell of the kernel (ipykernel 7), which answers while the main shell runs a
cell. But ipykernel 7.4 hands a message to the shell that spoke on the comm last, which is the one that is busy. Here
it goes where it was sent. Kernels without subshells know nothing of this, and answer between cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROUTE = "_reply_subshell_for"  # ipykernel asks this of a comm that has it: data, the shell named -> the shell


def answer_where_asked(comm: Any, is_for_main: Callable[[Any], bool] = lambda data: False) -> None:
    """Messages on this comm go to the shell that they name. None is left alone.

    Those whose data `is_for_main` says so go to the main shell, which runs one thing at a time.
    """
    if comm is not None:
        setattr(comm, ROUTE, lambda data, asked: None if is_for_main(data) else asked)


def is_what_if(message: Any, part: str) -> bool:
    """Whether a page's message asks, in this part of it, for another cut of a graph.

    That changes torch's settings for a moment, so no cell may run beside it.
    """
    what = message.get(part) if isinstance(message, dict) else None
    return isinstance(what, list) and what[:1] == ["what if"]
