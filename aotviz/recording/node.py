"""One node of a recorded graph, and the protocol that the texts and drawings of a graph need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aotviz.recording.events import ValueRecord
from aotviz.recording.sources import SourceLine


@dataclass(frozen=True)
class Node:
    """One node, with texts in place of text numbers. `inputs` are node indices, in order, without repetition."""

    index: int
    op: str
    name: str
    target: str
    args: str
    inputs: tuple[int, ...]
    value_id: int
    value: ValueRecord | None
    source: SourceLine
    module_path: str
    module_type: str
    sequence_number: int
    is_backward: bool
    descriptor: str


class HasNodes(Protocol):
    """The part of `Graph` that the listing and the drawing use."""

    @property
    def role(self) -> str: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    @property
    def output_descriptors(self) -> tuple[str, ...]: ...

    def text(self, number: int) -> str: ...

    @property
    def rows(self) -> tuple[Node, ...]: ...
