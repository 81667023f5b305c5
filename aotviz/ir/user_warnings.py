"""Warnings that point to the user's line, even if they come from deep inside of a compilation."""

from __future__ import annotations

import contextlib
import inspect
import os
import sysconfig
import traceback
import warnings
from types import FrameType

from aotviz.ir.user_code import HOUSE, TORCH

_OURS = HOUSE, TORCH
_STANDARD = sysconfig.get_path("stdlib") + os.sep
PACKAGES = f"{os.sep}site-packages{os.sep}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Like `warnings.warn`, but for the innermost line that is neither in aotviz nor in torch."""
    frame, level = _users_frame()
    warnings.warn(message, category, stacklevel=level if frame is not None else 2)


def users_place() -> str:
    """The innermost line that is neither in aotviz nor in torch, "file:line in function"; "" if there is none."""
    frame, _ = _users_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def users_line() -> str:
    """The same line as a traceback prints it, with its code."""
    frame, _ = _users_frame()
    return "" if frame is None else traceback.format_list(traceback.extract_stack(frame, limit=1))[0].rstrip()


def callers() -> str:
    """The calls that led here, as a traceback prints them: from the user's outermost line on, without those of aotviz,
    of torch and of Python itself."""
    frames = [frame for frame, _ in traceback.walk_stack(None) if not is_pythons(frame.f_code.co_filename)]
    while frames and PACKAGES in frames[-1].f_code.co_filename:
        frames.pop()
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in reversed(frames))
    return "".join(summary.format())


def is_pythons(file: str) -> bool:
    """Whether a call in this file is of no interest to the user: torch's, ours, or one of Python's own library."""
    return file.startswith((*_OURS, "<frozen", "<aotviz")) or (file.startswith(_STANDARD) and PACKAGES not in file)


def is_users(file: str) -> bool:
    """Whether a line of this file is neither aotviz's nor torch's, nor of code that either of them generated."""
    return not file.startswith((*_OURS, "<")) and PACKAGES not in file and not is_inductors(file)


def is_inductors(file: str) -> bool:
    """Whether Inductor generated this file: it is in the folder of its caches."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "").rstrip(os.sep)
    return "torchinductor" in file or (folder != "" and file.startswith(folder + os.sep))


def _users_frame() -> tuple[FrameType | None, int]:
    """That line's frame, and how far it is from the caller of this function."""
    frame = inspect.currentframe()
    level = 0
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, contextlib.__file__, "<aotviz")):
        frame, level = frame.f_back, level + 1
    return frame, level
