"""Receive torch's structured trace in the process that writes it.

Torch's compilers log to one logger, and one of torch's handlers writes the records to a file if `TORCH_TRACE` is set.
`attach` adds a second handler, so both get everything. Torch makes the texts only while the logger has a handler: after
the last receiver is detached, compiling costs the same as before.

If `TORCH_TRACE` is not set, torch's handler removes itself at the first record, and Python's logging then skips the
handler after it. So our handler comes first. `logging.disable(...)` must not silence the trace: newer releases of torch
ensure that, and `attach` ensures it for older ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from aotviz.live import exported, failed_guards
from aotviz.recorder import calls
from aotviz.recording.noted_calls import NotedCall
from aotviz.torch_private import dynamo, exporting, runtime, torchs_log

if TYPE_CHECKING:
    from aotviz.live.watched import WatchedLog

LOGGER = logging.getLogger("torch.__trace")
FAILED_GUARDS = "aotviz_failed_guards"  # our own record: all guards that fail for a call; torch names only the first
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))) + os.sep

_lock = threading.RLock()


class Moment:
    """The state of Dynamo while it writes a record. It is valid only in the same call and thread."""

    @property
    def compilation(self) -> object:
        """An object that lives until no part of the compilation can still be compiled; None outside a compilation."""
        return dynamo.compilation()

    def code(self) -> int | None:
        """The hash of the code object that is compiled, which is the same for equal code; None if it is unknown."""
        found = dynamo.compile_call()
        return hash(found["code"]) if found is not None and "code" in found else None

    def call(self) -> NotedCall | None:
        """The call from outside for which this thread compiles."""
        return calls.noted()

    def failed_guards(self) -> list[failed_guards.Program]:
        """For each of Dynamo's programs for this function, the guards that fail for this call, newest program first."""
        found = dynamo.compile_call() or {}
        entries, frame = dynamo.programs(found), found.get("frame")
        return failed_guards.of(entries, frame.f_locals) if entries and frame is not None else []


class Tap(logging.Handler):
    """The one log handler, which serves all receivers. An error in a receiver never affects the user's program."""

    is_a_watch = True  # see torchs_log.is_traced

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.receivers: tuple[WatchedLog, ...] = ()
        self.was_disabled = False
        self.exports = contextlib.ExitStack()

    @runtime.skipped
    def handle(self, record: logging.LogRecord) -> bool:
        """Without a lock, which a handler has otherwise: whatever receives a record may write records itself. Nor does
        Dynamo look at what is called here, to compile it, which would write a record too."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        head, payload = getattr(record, "metadata", None), getattr(record, "payload", None)
        if not isinstance(head, dict) or record.pathname == torchs_log.OWN_FILE:
            return
        place = f"{record.pathname.removeprefix(PACKAGE)}:{record.lineno}"
        moment = Moment()
        self._tell(record, place, head, payload, moment)
        if (head.get("artifact") or {}).get("name") == "recompile_reasons":
            programs = moment.failed_guards()
            if any(program.failed for program in programs):
                about, said = _artifact(FAILED_GUARDS, [asdict(program) for program in programs])
                self._tell(record, place, {**head, **about}, said, moment)

    def _tell(
        self, record: logging.LogRecord, place: str, head: dict[str, Any], payload: str | None, moment: Moment
    ) -> None:
        for receiver in self.receivers:
            try:
                receiver.receive(record.created, record.process or 0, place, head, payload, moment)
            except Exception as error:
                with _lock:
                    self.receivers = tuple(other for other in self.receivers if other is not receiver)
                warnings.warn(
                    f"aotviz stopped watching because of an error ({type(error).__name__}: {error}). The "
                    "program is not affected. Please report this.",
                    RuntimeWarning,
                    stacklevel=2,
                )


_tap = Tap()


def attach(receiver: WatchedLog) -> None:
    """Send a receiver every record from now on, and the records that torch writes only once per process. The names in
    these come first in a watch's log, so it does not matter that other threads write records meanwhile."""
    with _lock:
        if _tap not in LOGGER.handlers:
            _tap.was_disabled, LOGGER.disabled = LOGGER.disabled, False
            LOGGER.handlers = [_tap, *LOGGER.handlers]
            LOGGER.__dict__.setdefault("isEnabledFor", _is_enabled)
            _tap.exports.enter_context(exporting.told(exported.noted))
        _tap.receivers = (*_tap.receivers, receiver)
    for head, payload in said_before():
        receiver.receive(time.time(), os.getpid(), "torch/_logging/structured.py:1", head, payload)


def detach(receiver: WatchedLog) -> None:
    """Stop sending to a receiver. After the last one, the logger is restored."""
    with _lock:
        _tap.receivers = tuple(other for other in _tap.receivers if other is not receiver)
        if not _tap.receivers and _tap in LOGGER.handlers:
            LOGGER.handlers = [other for other in LOGGER.handlers if other is not _tap]
            if LOGGER.__dict__["isEnabledFor"] is _is_enabled:
                del LOGGER.__dict__["isEnabledFor"]
            LOGGER.disabled = LOGGER.disabled or _tap.was_disabled
            _tap.exports.close()


def _is_enabled(level: int) -> bool:
    return level >= LOGGER.level


def said_before() -> Iterator[tuple[dict[str, Any], str | None]]:
    """The records that torch writes only once: its version, and the numbered file names that later records use."""
    yield _artifact("torch_version", {"pytorch_version": torch.__version__})
    for text, number in list(dynamo.numbered_files.items()):
        yield {"str": [text, number]}, None


def _artifact(name: str, value: Any) -> tuple[dict[str, Any], str]:
    """The record for a value, and the value's text."""
    text = json.dumps(value)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return {"artifact": {"name": name, "encoding": "json"}, "has_payload": digest}, text
