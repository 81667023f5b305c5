"""The last forms: a call whose graphs are compiled, and the program that runs.

They are not in ir/forms.py because they hold objects that a program uses at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.fx as fx

from aotviz.ir.forms import Compiled, Executable, Form, GraphCall, Split
from aotviz.runtime.cuts import Cut
from aotviz.runtime.deferred_stages import LazyBackward
from aotviz.runtime.double_backward import Gradients
from aotviz.runtime.generators import Generators
from aotviz.runtime.partial_backward import PartialBackward


@dataclass(frozen=True)
class _Lowered(Form):
    call: GraphCall
    compiled_forward: Compiled

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return self.call.graphs


@dataclass(frozen=True)
class LoweredGraph(_Lowered):
    """An inference graph, compiled."""


@dataclass(frozen=True)
class LoweredSplit(_Lowered):
    """A split whose forward is compiled, and whose backward is or will be."""

    call: Split
    backward: LazyBackward
    with_history: Gradients  # the backward for create_graph=True
    partial: PartialBackward  # the backward if some gradients are missing
    cut: Cut | None  # the backward if a result from which others are computed has a hook; None if there is no such
    generators: Generators | None  # that both halves draw from


@dataclass(frozen=True)
class Program(Executable):
    """An executable, and the form that it was made from, with its graphs."""

    lowered: LoweredSplit | LoweredGraph

    @property
    def call(self) -> GraphCall:
        """The call as autograd sees it."""
        return self.lowered.call.outer

    def executable(self) -> Executable:
        """This program without its graphs."""
        return Executable(
            self.options, self.name, self.function, self.filename, self.source, self.notes, evidence=self.evidence
        )
