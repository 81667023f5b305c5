"""How a kernel answers a page's questions over a comm: with bytes, or with an error.

A slow answer reports each stage, and stops before the next stage if the page has cancelled it. This module imports
nothing heavy, because `import aotviz` already starts the kernel's side of the live panel.

JupyterLab sends a widget's messages to a subshell of the kernel (ipykernel 7), which can answer while the main shell
runs a cell. But ipykernel 7.4 passes a message to the shell that last used the comm, and that one may be busy.
`answer_where_asked` passes it to the shell that the message names. Kernels without subshells ignore this, and answer
between cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OnStage = Callable[[str], None]
ROUTE = "_reply_subshell_for"  # ipykernel calls this on a comm that has it: (data, shell in the message) -> shell


class Cancelled(Exception):
    """The page no longer wants the answer."""


class Answers:
    """The answers of one comm. They are sent with `send(data, buffers=...)`.

    >>> answers = Answers(lambda data, buffers=None: print(data, buffers))
    >>> answers.answer("q", lambda on_stage: b"...")
    {'answer': 'q'} [b'...']
    """

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._cancelled: set[str] = set()  # questions whose answers are no longer wanted

    def cancel(self, question: object) -> None:
        """Note that the page no longer wants the answer to this question."""
        self._cancelled.add(str(question))

    def answer(self, question: object, make: Callable[[OnStage], bytes]) -> None:
        """Send {"answer": question} with the bytes that `make` returns, or with the "error" that it raised.

        `make` gets a function to call before each stage. That function sends {"progress": question, "stage": name}, and
        raises Cancelled if the page no longer wants the answer.
        """
        reply: dict[str, Any] = {"answer": question}

        def on_stage(stage: str) -> None:
            if str(question) in self._cancelled:
                raise Cancelled("It was cancelled.")
            self._send({"progress": question, "stage": stage})

        try:
            self._send(reply, buffers=[make(on_stage)])
        except Exception as error:  # the page shows the error; if raised here, it would only reach a log
            self._send({**reply, "error": str(error) or type(error).__name__})
        self._cancelled.discard(str(question))


def answer_where_asked(comm: Any, is_for_main: Callable[[Any], bool]) -> None:
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
