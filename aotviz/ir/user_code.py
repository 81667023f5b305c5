"""Whose code a source file is: the user's, or that of a library which runs it."""

from __future__ import annotations

import os

import torch

TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_library(filename: str) -> bool:
    """Whether a source file is torch's, ours or Python's own, and not the user's."""
    return filename.startswith((TORCH, HOUSE, "<frozen"))
