"""Real logs, broken at random: whatever is left of them is read, and nothing that is whole is lost.

    python -m tests.torch_trace.fuzz --n 10000          exit 1 and the seed at the first failure
    python -m tests.torch_trace.fuzz --n 1 --seed 4711  that one again
    python -m tests.torch_trace.fuzz --recordings       saved recordings instead: read, or refused in one sentence

Among the damages are terminal escapes, deep nesting and, in every hundredth file, a gzip bomb. Nothing that a terminal
would obey may come out, and memory stays below 1 GB.

What is whole is found here by a few lines that share nothing with the reader.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import gzip
import hashlib
import json
import random
import re
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable

import msgspec

from aotviz.logs.lines import ABOUT
from aotviz.logs.read_trace import read_bytes, read_trace
from aotviz.reading.recording import Recording, RecordingError, load
from aotviz.recording import files
from aotviz.recording.schema import VERSION
from tests import corpus, hostile
from tests.recorder.strategies import small

LINE = re.compile(rb"[A-Z]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] (\{.*)", re.S)
EXCERPT_RECORDS = 150
HANG_S = 120
MOST_MIB = 1000
ERRORS = "dedicated_log_torch_trace_0.log"
GOOD = b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'


def whole_records(content: bytes) -> Counter[str]:
    """How many records of each type are well-formed, text and all."""
    counts: Counter[str] = Counter()
    for record in re.split(rb"\n(?!\t)", content):
        first, *rest = record.split(b"\n")
        match = LINE.fullmatch(first)
        if match is None:
            continue
        try:
            head = json.loads(match[1].decode())
        except (ValueError, RecursionError):  # also of UTF-8
            continue
        kinds = [key for key in head if key not in ABOUT]
        text = b"\n".join(line.removeprefix(b"\t") for line in rest)
        if "has_payload" in head and head["has_payload"] != hashlib.md5(text, usedforsecurity=False).hexdigest():
            continue
        if kinds:
            named = kinds[0] == "artifact" and isinstance(head["artifact"], dict)
            kind = f"artifact/{head['artifact'].get('name', '')}" if named else kinds[0]
            counts["".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in kind)] += 1
    return counts


def excerpt(rng: random.Random) -> bytes:
    """Some records in a row of one of the corpus's logs."""
    content = rng.choice(CONTENTS)
    starts = [0] + [match.end() for match in re.finditer(rb"\n(?!\t|$)", content)]
    first = rng.randrange(len(starts))
    last = min(len(starts) - 1, first + rng.randrange(1, EXCERPT_RECORDS))
    return content[starts[first] : starts[last] if last > first else len(content)][:400_000]


CONTENTS = [path.read_bytes() for path in corpus.logs()]


def truncated(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def beheaded(content: bytes, rng: random.Random) -> bytes:
    return content[rng.randrange(len(content) + 1) :]


def flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 20)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flipped_in_heads(content: bytes, rng: random.Random) -> bytes:
    """In the JSON of records, where it hurts most."""
    places = [match.start() for match in re.finditer(rb"\] \{", content)]
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 20) if places else 0):
        at = rng.choice(places) + rng.randrange(200)
        if at < len(changed):
            changed[at] = rng.choice(b'{}[]",:-0123456789etn\\\t\n \xff\x00')
    return bytes(changed)


def shuffled(content: bytes, rng: random.Random) -> bytes:
    """Some lines in a row, in another order."""
    lines = content.splitlines(keepends=True)
    first = rng.randrange(len(lines))
    last = first + rng.randrange(2, 40)
    part = lines[first:last]
    rng.shuffle(part)
    return b"".join([*lines[:first], *part, *lines[last:]])


def mixed(content: bytes, rng: random.Random) -> bytes:
    """The lines of another log among its own."""
    lines, others = content.splitlines(keepends=True), excerpt(rng).splitlines(keepends=True)
    for line in others[: rng.randrange(1, 60)]:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def holed(content: bytes, rng: random.Random) -> bytes:
    first = rng.randrange(len(content))
    return content[:first] + content[first + rng.randrange(5000) :]


def stuffed(content: bytes, rng: random.Random) -> bytes:
    first = rng.randrange(len(content))
    return content[:first] + rng.randbytes(rng.randrange(200)) + content[first:]


def escaped(content: bytes, rng: random.Random) -> bytes:
    """Terminal escapes in texts, raw and as JSON writes them."""
    evil = hostile.EVIL.replace("\r", "")
    lines = content.split(b'"')
    for _ in range(rng.randrange(1, 10)):
        at = rng.randrange(len(lines))
        lines[at] += evil.encode() if rng.random() < 0.3 else json.dumps(evil)[1:-1].encode()
    return b'"'.join(lines)


def nested(content: bytes, rng: random.Random) -> bytes:
    """A value in the JSON of a record, or an argument of a graph, that is nested deep."""
    places = [match.start() for match in re.finditer(rb"(?<=: )[{\[\"0-9]|(?<=\()\w+", content)]
    if not places:
        return content
    at, depth = rng.choice(places), rng.choice([50, 150, 600, 900, 5000])
    return content[:at] + b"[" * depth + b"1" + b"]" * depth + content[at:]


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    truncated, beheaded, flipped, flipped_in_heads, shuffled, mixed, holed, stuffed, escaped, nested,
]  # fmt: skip


def check(content: bytes, rng: random.Random, complete: bool) -> None:
    """Read it; raises AssertionError, or whatever the reader lets escape."""
    cuts = sorted(rng.randrange(len(content) + 1) for _ in range(rng.randrange(4)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    found = read_bytes(pieces, "fuzz")
    (log,) = found.outline.logs
    lost = whole_records(content) - Counter(log.records)
    assert not lost, f"lost: {dict(lost)}"
    newlines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    assert log.lines == newlines, f"{log.lines} lines of {newlines}"
    assert all(1 <= bad.line <= log.lines for bad in log.bad)
    if complete:
        data = found.data
        files.check(data)
        assert files.unpack(files.pack(data)) == data


def look(recording: Recording) -> None:
    """Print all that a reader sees first; raises AssertionError if a terminal would obey any of it."""
    told = [str(recording), str(recording.explain()), recording.timeline().to_string(), str(recording.notes)]
    for compilation in recording.compilations[:2]:
        told += [str(recording.explain(compilation.id)), repr(compilation)]
        for stage in compilation.data.stages:
            told += [compilation.graph(role, stage=stage.name).code for role in stage.graphs]
    obeyed = hostile.obeyed("\n".join(told))
    assert not obeyed, f"a terminal would obey {obeyed!r}"


def one(seed: int) -> None:
    rng = random.Random(seed)
    content = excerpt(rng)
    for _ in range(rng.randrange(1, 4)):
        if content:
            content = rng.choice(DAMAGES)(content, rng)
    check(content, rng, complete=seed % 10 == 0)
    if seed % 10 == 0:
        look(Recording(read_bytes([content], "fuzz")))
    if seed % 100 == 50:
        bomb(content, rng)


def bomb(content: bytes, rng: random.Random) -> None:
    """The log, and behind it up to a GB that is packed small: it is refused."""
    filling = gzip.compress(rng.choice([b"0", b"\n", b"\t", b"\ttext\n"]) * (1 << 20))
    with tempfile.NamedTemporaryFile(suffix=".log.gz") as file:
        file.write(gzip.compress(GOOD + content) + filling * rng.randrange(200, 1000))
        file.flush()
        said = ""
        try:
            read_trace(file.name, index=False, limit_mb=4)
        except RecordingError as error:
            said = str(error)
        assert "limit_mb" in said, said or "a bomb was read"


def one_recording(seed: int) -> bool:
    """Damage a saved recording, on the outside or on the inside. Returns whether it was read, not refused."""
    rng = random.Random(seed)
    plain = rng.choice(recordings())
    for _ in range(rng.randrange(0, 3)):
        if plain:
            plain = rng.choice([truncated, flipped, holed, stuffed])(plain, rng)
    kind = rng.randrange(4)
    if kind == 0:
        at, depth = rng.randrange(len(plain) + 1), rng.choice([100, 600, 900, 20_000])
        plain = plain[:at] + b"\x91" * depth + plain[at:]
    elif kind == 1:  # in a text: a byte of length, then the text
        places = [match.start() for match in re.finditer(rb"[\xa5-\xbf][ -~]{5}", plain)]
        for at in rng.sample(places, min(5, len(places))):
            plain = plain[: at + 1] + b"\x1b[2J\x7f" + plain[at + 6 :]
    packed = gzip.compress(plain, 1)
    if seed % 100 == 50:
        packed = gzip.compress(plain + b"\x00" * (300 << 20), 1)
    content = files.MAGIC + VERSION.to_bytes(2, "big") + packed
    if kind == 3 and rng.random() < 0.5:
        content = rng.choice([truncated, flipped, holed])(content, rng)
    with tempfile.NamedTemporaryFile(suffix=".aotviz") as file:
        file.write(content)
        file.flush()
        try:
            recording = load(file.name)
        except RecordingError as error:
            told = str(error)
            assert told.startswith(file.name), told
            assert not hostile.obeyed(told), repr(told)
            assert "\n" not in told, repr(told)
            return False
        look(recording)
        return True


@functools.cache
def recordings() -> list[bytes]:
    """msgpack of a small recording, and of one with all that a log says."""
    errors = read_bytes([corpus.folder("errors").joinpath(ERRORS).read_bytes()], "errors").data
    return [msgspec.msgpack.encode(data) for data in (small(), small("g\n", "y"), errors)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recordings", action="store_true")
    args = parser.parse_args()
    what, readable = "recordings" if args.recordings else "logs", 0
    for seed in range(args.seed, args.seed + args.n):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            readable += bool(one_recording(seed)) if args.recordings else not one(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        if (seed + 1 - args.seed) % 100 == 0:
            mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(f"{seed + 1 - args.seed} of {args.n} {what}, {readable} readable, {mib} MiB at most", flush=True)
            assert mib < MOST_MIB, f"{mib} MiB of memory"
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
