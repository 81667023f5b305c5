"""The program of a compilation, which a recording of this process can ask for more, as long as it exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from aotviz.recording.schema import CompilationData


class LiveProgram(Protocol):
    def cut(
        self,
        partition_fn: str | Callable[..., Any] | None,
        memory_budget: float | None,
        on_stage: Callable[[str], None] | None = None,
    ) -> tuple[CompilationData, list[str]]:
        """Partition its joint graph again. Returns what was recorded of that, and its strings."""
        ...

    def reads_budget(self, partition_fn: str | Callable[..., Any] | None) -> bool:
        """Whether a partitioner keeps to a memory budget. None is the partitioner of the program."""
        ...
