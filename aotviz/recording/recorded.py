"""The protocols through which explanations and widgets read a recording. `reading.Recording` implements them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from aotviz.recording.compilation import Compilation
from aotviz.recording.events import RecordingData


class HasData(Protocol):
    """What a page needs."""

    @property
    def data(self) -> RecordingData: ...


class Recorded(HasData, Protocol):
    """What explanations and widgets need. `Recording` documents each of these."""

    @property
    def compilations(self) -> list[Compilation]: ...

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]: ...

    @property
    def data_producer(self) -> dict[str, str]: ...

    @property
    def dropped(self) -> int: ...

    @property
    def notes(self) -> list[str]: ...

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]: ...

    def __len__(self) -> int: ...
