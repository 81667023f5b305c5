"""Where a Recording gets its content from (a file that was read, or the store of a running process), and what others
need of a Recording.

A third holder reads torch's logs (logs/contents.py), and a fourth watches torch.compile (live/watched.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from msgspec.structs import replace

from aotviz.recording import progress
from aotviz.recording.compilation import Compilation
from aotviz.recording.merging import merge, with_rows
from aotviz.recording.noted_calls import NotedCall
from aotviz.recording.paintings import Paintings
from aotviz.recording.schema import CompilationData, RecordingData
from aotviz.recording.store import CompilationLog, Store
from aotviz.recording.strings import clean

Changed = Callable[[], None]  # called when there is more to read; it must not raise
MOST_UNPACKED = 4  # unpacked compilations that a live recording keeps in its cache


class Content(Protocol):
    """What a recording can be asked, whatever holds it."""

    @property
    def data(self) -> RecordingData:
        """The whole recording."""

    @property
    def dropped(self) -> int:
        """The number of compilations that were dropped to keep the recording within its bounds."""

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]:
        """The rows from torch's logs, and their texts, without the graphs and stages that are expensive to read."""

    @property
    def revision(self) -> Hashable:
        """Another value whenever there is more to read."""

    def follow(self, changed: Changed) -> Changed:
        """Call `changed`, in the thread that compiles, whenever there is more to read. Calling the result stops it."""
        ...

    def __len__(self) -> int:
        """The number of compilations."""
        ...


class Recorded(Content, Protocol):
    """What explanations and widgets need. `Recording` documents each of these."""

    @property
    def compilations(self) -> list[Compilation]: ...

    @property
    def data_producer(self) -> dict[str, str]: ...

    @property
    def listed(self) -> tuple[RecordingData, Sequence[str]]: ...

    @property
    def notes(self) -> list[str]: ...

    def paint(self, *args: Any, **options: Any) -> None: ...

    def unpaint(self, label: str, compilation: str | int = 0) -> None: ...


class Holder(Content, Protocol):
    """What a Recording needs from its content. What is here is right for content that is complete and never changes."""

    @property
    def producer(self) -> dict[str, str]:
        """The versions of the software that made the recording, by name."""
        return self.rows[0].producer

    @property
    def dropped(self) -> int:
        return self.rows[0].dropped

    @property
    def listed(self) -> tuple[RecordingData, Sequence[str]]:
        """`rows`, and the rows that aotviz's own compilations add: their guards, graph breaks and symbols."""
        return self.rows

    @property
    def revision(self) -> Hashable:
        return 0

    def follow(self, changed: Changed) -> Changed:
        return lambda: None

    @property
    def calls(self) -> Mapping[str, NotedCall]:
        """The calls of this process that led to compilations, as far as they are known, by the compilations' ids."""
        return {}

    @cached_property
    def paintings(self) -> Paintings:
        """The user's values for nodes. They can be added to every recording."""
        return Paintings(self.rows[0].paintings)

    def __iter__(self) -> Iterator[Compilation]: ...

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Whole(Holder):
    """A recording that is complete in memory, for example one that was read from a file."""

    def __init__(self, data: RecordingData) -> None:
        self._data = data
        self._compilations = [Compilation(compilation, data.strings) for compilation in data.compilations]

    @property
    def data(self) -> RecordingData:
        return self._data

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]:
        return self._data, self._data.strings

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self._compilations)


class Replaceable(Whole):
    """A complete recording in whose place another may come."""

    def __init__(self, data: RecordingData) -> None:
        super().__init__(data)
        self._followers: list[Changed] = []
        self._revision = 0

    @property
    def revision(self) -> Hashable:
        return self._revision

    def replace(self, data: RecordingData) -> None:
        super().__init__(data)
        self._revision += 1
        for changed in list(self._followers):
            changed()

    def follow(self, changed: Changed) -> Changed:
        self._followers.append(changed)
        return lambda: self._followers.remove(changed) if changed in self._followers else None


class Live(Holder):
    """What a running process has recorded so far. A compilation stays packed until it is read."""

    def __init__(self, store: Store, producer: dict[str, str]) -> None:
        self._producer = {clean(name): clean(version) for name, version in producer.items()}
        self._store = store
        self._known: dict[tuple[str, int], Compilation] = {}  # by id and revision
        self._unpacked: deque[tuple[str, int]] = deque()  # keys of the compilations that were unpacked, the latest last

    @property
    def paintings(self) -> Paintings:  # of the store, which several recordings read
        return self._store.paintings

    @property
    def calls(self) -> Mapping[str, NotedCall]:
        return {number: log.call for number, log in self._store.logs() if log.call is not None}

    @property
    def data(self) -> RecordingData:
        return self._merged([(compilation, compilation.data) for compilation in self])

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]:
        return self._merged([]), []  # no rows: our own compilations do not come from a log

    @property
    def listed(self) -> tuple[RecordingData, Sequence[str]]:
        data = self._merged([(compilation, compilation.outline) for compilation in self])
        return data, data.strings

    @property
    def revision(self) -> Hashable:
        return (len(self._store.call_errors), *((number, log.revision) for number, log in self._store.logs()))

    def _merged(self, found: Sequence[tuple[Compilation, CompilationData]]) -> RecordingData:
        data = merge([(data, list(one.strings)) for one, data in found], self._producer, self._store.dropped)
        data = replace(data, call_errors=[*self._store.call_errors])
        return with_rows(data, [one.rows() if one.rows is not None else None for one, _ in found])

    def follow(self, changed: Changed) -> Changed:
        def moved(compilation: progress.Compilation) -> None:
            if any(log is compilation for _, log in self._store.logs()):
                changed()

        progress.listen(moved)
        return lambda: progress.unlisten(moved)

    def __len__(self) -> int:
        return len(self._store.logs())

    def __iter__(self) -> Iterator[Compilation]:
        known: dict[tuple[str, int], Compilation] = {}
        for number, log in self._store.logs():
            key = (number, log.revision)
            known[key] = self._known.get(key) or self._outlined(key, log)
        self._known = known
        return iter(list(known.values()))

    def _outlined(self, key: tuple[str, int], log: CompilationLog) -> Compilation:
        outline, strings = log.outline()

        def complete() -> CompilationData:
            self._unpacked.append(key)
            while len(self._unpacked) > MOST_UNPACKED:
                self._known.pop(self._unpacked.popleft(), None)
            return replace(log.read()[0], id=key[0])

        return Compilation(
            replace(outline, id=key[0]),
            strings,
            complete,
            nodes=log.most_nodes,
            live_program=log.live_program,
            revision=key[1],
            rows=log.rows,
        )
