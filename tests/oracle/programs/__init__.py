"""The table of small programs, `PROGRAMS`: each pins down one rule of aliasing, mutation or calling convention.

A file for each subject; importing one puts its programs into the table.
"""

from __future__ import annotations

from . import (  # noqa: F401
    aliased_inputs,
    calling_convention,
    dynamic_shapes,
    edges,
    gradients,
    metadata,
    modules,
    mutated_inputs,
    outputs,
)
from .registering import PROGRAMS

__all__ = ["PROGRAMS"]
