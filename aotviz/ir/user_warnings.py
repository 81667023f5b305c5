"""Warnings that point to the user's line, even if they come from deep inside of a compilation."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings

import torch

_OURS = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (os.path.dirname(__file__), torch.__file__))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Like `warnings.warn`, but for the innermost line that is neither in aotviz nor in torch."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, contextlib.__file__, "<aotviz")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level if frame is not None else 2)
