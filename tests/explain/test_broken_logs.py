"""Whatever a log has lost, what is left of it is explained: no answer raises."""

from __future__ import annotations

import random

import pytest

import aotviz
from tests import corpus

SMALL = ("errors", "aliases", "dynamic_shapes", "recompile_limit", "ranks", "graph_breaks")


def broken(content: bytes, rng: random.Random) -> bytes:
    """The log with lines lost, doubled or put elsewhere, bytes changed, or its end cut off."""
    lines = content.splitlines(keepends=True)
    kind = rng.choice(("cut", "lose", "shuffle", "bytes", "words"))
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "lose":
        return b"".join(line for line in lines if rng.random() > 0.2)
    if kind == "shuffle":
        start = rng.randrange(len(lines))
        part = lines[start : start + 400]
        rng.shuffle(part)
        return b"".join([*lines[:start], *part, *lines[start + 400 :]])
    changed = bytearray(content)
    if kind == "bytes":
        for _ in range(200):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    words = (b"expected", b"compile_id", b"components", b"size", b"Graph Break", b"time", b"rank", b"null", b"0/")
    word = rng.choice(words)
    return content.replace(word, rng.choice((b"", b"\\u0000", b"-1", b"nan", word[::-1])))


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_broken_log_is_explained_without_raising(seed, tmp_path) -> None:
    rng = random.Random(seed)
    for name in SMALL:
        for path in corpus.folder(name).iterdir():
            (tmp_path / path.name).write_bytes(broken(path.read_bytes(), rng))
        try:
            log = aotviz.read_trace(tmp_path, index=False)
        except aotviz.RecordingError:
            continue  # nothing of a log is left
        assert str(log.explain())
        for made in (log.recompiles(), log.cache_misses(), log.distinct_graph_breaks(), log.rank_differences()):
            assert made._repr_html_()
        log.timeline()
        for compilation in log.compilations[:6]:
            assert log.explain(compilation.id).title
        for path in tmp_path.iterdir():
            path.unlink()
