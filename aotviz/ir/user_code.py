"""Whether a source file is the user's code, or belongs to a library that runs it."""

from __future__ import annotations

import os

import torch

TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_library(filename: str) -> bool:
    """Whether a source file belongs to torch, aotviz or Python's frozen modules, and not to the user."""
    return filename.startswith((TORCH, HOUSE, "<frozen"))
