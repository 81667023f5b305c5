"""Make a recording of what was read from all logs: give compilations their labels and ranks, and say what is odd.

A compile id is unique only within a process, so where there are several, a compilation is called "rank 1: 0/3". Which
ranks, logs and processes must be told apart is known only when all logs were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from aotviz.logs import stacks
from aotviz.logs.chromium_events import in_order
from aotviz.logs.parts import Part
from aotviz.logs.resets import labelled
from aotviz.logs.texts import Item
from aotviz.recording.schema import NONE, LogRecord, RecordingData

MOST_NAMED = 5  # ranks that a note names


def outline(part: Part) -> tuple[RecordingData, list[Item]]:
    """(the recording without its graphs, its texts)."""
    ranks, about_ranks = _ranks(part)
    labels = _labels(part, ranks)
    logs = _logs(part, ranks)
    versions = sorted({log.torch for log in logs} - {""})
    found = replace(
        part.data,
        producer=part.data.producer | ({"torch": ", ".join(versions)} if versions else {}),
        compilations=[
            replace(one, id=labelled(one.id, one.reset, labels[stream]), rank=ranks[stream])
            for one, stream in zip(part.data.compilations, part.stream_of, strict=True)
        ],
        notes=[*about_ranks, *_resets(part, labels)],
        logs=logs,
        events=in_order(part.data.events) if len(logs) > 1 else part.data.events,
    )
    return found, _resolved(part)


def _resolved(part: Part) -> list[Item]:
    """The texts, with the names of files that another log of the same process has."""
    files = {(process, number): name for process, number, name in part.files}
    return [stacks.resolved(item, files) if isinstance(item, str) and "<file " in item else item for item in part.texts]


def _ranks(part: Part) -> tuple[list[int], list[str]]:
    """(the rank of each stream, notes on logs whose names say another rank than their records).

    The records are right, unless the records of several logs say one rank and the names tell the logs apart: then
    these are several processes, and the names are right.
    """
    ranks = [stream.rank for stream in part.streams]
    said: dict[int, list[int]] = {}  # rank -> streams
    for number, rank in enumerate(ranks):
        said.setdefault(rank, []).append(number)
    notes = []
    for rank, streams in said.items():
        logs = [part.data.logs[part.streams[number].log] for number in streams]
        named = [log.rank for log in logs]
        if rank == NONE or all(name in (NONE, rank) for name in named):
            continue
        names_differ = len(streams) > 1 and NONE not in named and len(set(named)) == len(named)
        if names_differ and not set(named) & (said.keys() - {rank}):
            for number, name in zip(streams, named, strict=True):
                ranks[number] = name
            names = ", ".join(map(str, named[:MOST_NAMED])) + (", ..." if len(named) > MOST_NAMED else "")
            notes.append(
                f"the names of {len(named)} logs say ranks {names}, but their records all say rank {rank}: "
                "the ranks are taken from the names"
            )
            continue
        notes += [
            f"{log.name}: the file's name says rank {log.rank}, its records say rank {rank}: "
            "the rank is taken from the records"
            for log in logs
            if log.rank not in (NONE, rank)
        ]
    return ranks, notes


def _labels(part: Part, ranks: list[int]) -> dict[int, str]:
    """For each stream with compilations, the prefix that makes its compile ids unique in the recording."""
    streams = list(dict.fromkeys(part.stream_of))
    of_rank = Counter(ranks[number] for number in streams)
    in_log = Counter(part.streams[number].log for number in streams)
    labels = {}
    for number in streams:
        stream, rank = part.streams[number], ranks[number]
        parts = [f"rank {rank}"] if rank != NONE else []
        if of_rank[rank] > 1 and len(in_log) > 1:
            parts.append(f"log {stream.log + 1}")
        if of_rank[rank] > 1 and in_log[stream.log] > 1:
            parts.append(f"process {stream.process}")
        labels[number] = ", ".join(parts) if len(streams) > 1 else ""
    return labels


def _logs(part: Part, ranks: list[int]) -> list[LogRecord]:
    """The logs, each with its rank if all of it has one."""
    found: dict[int, set[int]] = {}
    for stream, rank in zip(part.streams, ranks, strict=True):
        found.setdefault(stream.log, set()).add(rank)
    return [
        replace(log, rank=next(iter(found[number]))) if len(found.get(number, ())) == 1 else log
        for number, log in enumerate(part.data.logs)
    ]


def _resets(part: Part, labels: Mapping[int, str]) -> list[str]:
    """A note for each process in which Dynamo was reset."""
    notes = []
    for number, stream in enumerate(part.streams):
        if stream.resets:
            times = "once" if stream.resets == 1 else f"{stream.resets} times or more"
            where = f" in {labels[number]}" if labels.get(number) else ""
            notes.append(
                f"torch._dynamo.reset() was called {times}{where}: compile ids restart at 0/0 each time, "
                'so later ones are marked "reset 1" and so on'
            )
    return list(dict.fromkeys(notes))
