"""Real logs, broken at random: whatever is left of them is read, and nothing that is whole is lost.

    python -m tests.torch_trace.fuzz --n 10000          exit 1 and the seed at the first failure
    python -m tests.torch_trace.fuzz --n 1 --seed 4711  that one again

What is whole is found here by a few lines that share nothing with the reader.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable

from aotviz.logs.lines import ABOUT
from aotviz.logs.read_trace import read_bytes
from aotviz.recording import files
from tests import corpus

LINE = re.compile(rb"[A-Z]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] (\{.*)", re.S)
EXCERPT_RECORDS = 150
HANG_S = 60


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
        except ValueError:  # also of UTF-8
            continue
        kinds = [key for key in head if key not in ABOUT]
        text = b"\n".join(line.removeprefix(b"\t") for line in rest)
        if "has_payload" in head and head["has_payload"] != hashlib.md5(text, usedforsecurity=False).hexdigest():
            continue
        if kinds:
            named = kinds[0] == "artifact" and isinstance(head["artifact"], dict)
            counts[f"artifact/{head['artifact'].get('name', '')}" if named else kinds[0]] += 1
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


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    truncated, beheaded, flipped, flipped_in_heads, shuffled, mixed, holed, stuffed,
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


def one(seed: int) -> None:
    rng = random.Random(seed)
    content = excerpt(rng)
    for _ in range(rng.randrange(1, 4)):
        if content:
            content = rng.choice(DAMAGES)(content, rng)
    check(content, rng, complete=seed % 10 == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.n):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            one(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        if (seed + 1 - args.seed) % 100 == 0:
            print(f"{seed + 1 - args.seed} of {args.n} logs read", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
