"""The logs of the latest run in a folder that has the logs of many.

A process writes one log, and the ranks of a job write one each. So the latest run is the log that was written last and,
if its name has a rank, the newest log of each other rank that was still written after this one began. When it began
follows from the time stamps of its first and last lines: stamps have no time zone, but their difference is right.
"""

from __future__ import annotations

from aotviz.logs.assembler import stamp_seconds
from aotviz.logs.lines import PREFIX
from aotviz.logs.log_files import LINE, AnyLog

SLACK_S = 2.0  # stamps are cut to seconds here, and a file's time may be rounded
ANY_YEAR = 2000  # a leap year, because stamps have no year
YEAR_S = 366 * 24 * 3600


def latest(logs: list[AnyLog]) -> list[AnyLog]:
    """The logs of the latest run, in the order of `logs`."""
    newest = max(logs, key=lambda log: log.mtime_ns)
    if newest.rank < 0:
        return [newest]
    begun_ns = newest.mtime_ns - int((_seconds(newest) + SLACK_S) * 1e9)
    ranks = {newest.rank: newest}
    for log in sorted(logs, key=lambda log: log.mtime_ns):
        if log.rank >= 0 and log.mtime_ns >= begun_ns and log.folder == newest.folder:
            ranks[log.rank] = log
    return [log for log in logs if ranks.get(log.rank) is log]


def told(chosen: list[AnyLog], logs: list[AnyLog]) -> str:
    """What was chosen, as a note of the recording."""
    names = ", ".join(log.base_name for log in chosen)
    return f"the logs of the latest run, {len(chosen)} of {len(logs)}: {names}"


def _seconds(log: AnyLog) -> float:
    """How long a log was written, by its stamps; 0 if it has none at one of its ends."""
    stamps = [
        stamp_seconds(ANY_YEAR, found["stamp"].partition(b".")[0])
        for end in log.ends()
        for line in LINE.finditer(end)
        if (found := PREFIX.match(end, line.start()))
    ]
    return (stamps[-1] - stamps[0]) % YEAR_S if stamps and stamps[0] and stamps[-1] else 0.0
