"""How a kernel answers what a page asks by comm: with bytes, or with why there are none.

An answer that takes long says which stage it is in, and ends before the next one when the page does not want it any
more. Free of imports, because the panel of live compilations listens from `import aotviz` on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OnStage = Callable[[str], None]


class Cancelled(Exception):
    """The page wants no answer any more."""


class Answers:
    """Those of one comm. `send(data, buffers=...)` is how it speaks.

    >>> answers = Answers(lambda data, buffers=None: print(data, buffers))
    >>> answers.answer("q", lambda on_stage: b"...")
    {'answer': 'q'} [b'...']
    """

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._cancelled: set[str] = set()  # questions whose answers nobody wants any more

    def cancel(self, question: object) -> None:
        """The page does not want that answer."""
        self._cancelled.add(str(question))

    def answer(self, question: object, make: Callable[[OnStage], bytes]) -> None:
        """Sends {"answer": question} with the bytes that `make` gives, or with the "error" that it raised.

        `make` is given a function to call before each stage: it sends {"progress": question, "stage": name}, and
        raises Cancelled where the answer is not wanted.
        """
        reply: dict[str, Any] = {"answer": question}

        def on_stage(stage: str) -> None:
            if str(question) in self._cancelled:
                raise Cancelled("It was cancelled.")
            self._send({"progress": question, "stage": stage})

        try:
            self._send(reply, buffers=[make(on_stage)])
        except Exception as error:  # the page shows it; raised here it would end in a log that nobody reads
            self._send({**reply, "error": str(error) or type(error).__name__})
        self._cancelled.discard(str(question))
