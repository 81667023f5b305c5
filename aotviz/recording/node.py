"""One node of a recorded graph, and what the texts and drawings of a graph are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aotviz.recording.events import ValueRecord
from aotviz.recording.sources import SourceLine


@dataclass(frozen=True)
class Node:
    """One node, with its numbers looked up. `inputs` and `users` are node indices, in order, each once."""

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
    """What `Graph` tells of itself."""

    @property
    def role(self) -> str: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    @property
    def output_descriptors(self) -> tuple[str, ...]: ...

    def text(self, number: int) -> str: ...

    @property
    def rows(self) -> tuple[Node, ...]: ...
