"""Answer comm messages while a cell runs.

JupyterLab sends a widget's messages to a subshell of the kernel (ipykernel 7), which can answer while the main shell
runs a cell. But ipykernel 7.4 passes a message to the shell that last used the comm, and that one may be busy. This
module passes it to the shell that the message names. Kernels without subshells ignore this, and answer between cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROUTE = "_reply_subshell_for"  # ipykernel calls this on a comm that has it: (data, shell in the message) -> shell


def answer_where_asked(comm: Any, is_for_main: Callable[[Any], bool] = lambda data: False) -> None:
    """Make messages on this comm go to the shell that they name. Does nothing if `comm` is None.

    Messages for which `is_for_main(data)` is true go to the main shell, which runs one thing at a time.
    """
    if comm is not None:
        setattr(comm, ROUTE, lambda data, asked: None if is_for_main(data) else asked)


def is_what_if(message: Any, part: str) -> bool:
    """Whether the field `part` of a page's message asks for another partition of a graph.

    That changes torch's settings temporarily, so no cell may run at the same time.
    """
    what = message.get(part) if isinstance(message, dict) else None
    return isinstance(what, list) and what[:1] == ["what if"]
