"""Whatever the server of a shared cache does, a program is answered in time, after one warning that says what to do."""

from __future__ import annotations

import random
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from aotviz.cache import redis_connection, seals, shared
from aotviz.cache.seals import CacheWarning
from aotviz.cache.shared import OPERATION_SECONDS, Shared
from tests.cache import bad_servers
from tests.cache.bad_servers import CASES, ENTRY, FOUND, SECRET, Case, fake
from tests.cache.redis_server import Server, installed

BOUND_SECONDS = 3 * OPERATION_SECONDS  # for a slow machine


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warnings.WarningMessage]]:
    monkeypatch.setattr(seals, "_told", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheWarning)
        yield caught


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_server_costs_one_warning_and_little_time(case: Case, short: Path) -> None:
    installed()
    seen = bad_servers.tried(case, short)
    assert (seen.found, seen.saved) == (case.finds, case.saves), seen
    assert len(seen.told) == (1 if case.told else 0), seen.told
    assert case.told in "".join(seen.told)
    assert seen.look_up_seconds < BOUND_SECONDS
    assert seen.save_seconds < BOUND_SECONDS
    for said in seen.told:
        assert SECRET not in said
        assert "\n" not in said


def test_a_server_may_stop_close_or_lie_at_any_byte(
    monkeypatch: pytest.MonkeyPatch, told: list[warnings.WarningMessage], tmp_path: Path
) -> None:
    """The answer to a look-up, cut off or changed at each byte: a miss or the right program, and never an error."""
    installed()
    monkeypatch.setattr(shared, "OPERATION_SECONDS", 0.05)
    good = bad_servers.hash_reply() + b":1\r\n"
    choose = random.Random(33)
    began = time.monotonic()
    for place in range(len(good)):
        flipped = good[:place] + bytes([good[place] ^ 1 << choose.randrange(8)]) + good[place + 1 :]
        for answer, waits in ((good[:place], place % 8 == 0), (flipped, place % 8 == 0)):
            with fake(answer, waits=waits)(tmp_path) as (url, _):
                ingredients, mains = Shared(url).look_up(FOUND)
            assert mains in ({}, {"aa": ENTRY.main})
            assert ingredients in ({}, bad_servers.INGREDIENTS)
    assert time.monotonic() - began < 60
    assert all(one.category is CacheWarning for one in told)


@pytest.mark.parametrize(
    "kind", [RecursionError, MemoryError, AttributeError, UnicodeError, TypeError, KeyError, OSError, ValueError]
)
def test_whatever_is_raised_while_the_server_is_asked_is_a_miss(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, told: list[warnings.WarningMessage], server: Server
) -> None:
    def fail(*_: Any) -> Any:
        raise kind(SECRET)

    monkeypatch.setattr(redis_connection.Connection, "ask", fail)
    asked = Shared(server.url)
    assert asked.look_up(FOUND) == ({}, {})
    assert asked.part(ENTRY, "guards") is None
    asked.save(ENTRY, {}, {})
    asked.discard(ENTRY)
    (said,) = [str(one.message) for one in told]
    assert SECRET not in said
    assert "is not used: " in said


def test_an_interrupt_goes_through(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(redis_connection.Connection, "ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Shared(server.url).look_up(FOUND)


def test_a_wrong_address_or_a_silent_server_never_fails_a_compilation(
    monkeypatch: pytest.MonkeyPatch, told: list[warnings.WarningMessage], tmp_path: Path, clean_dynamo: None
) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).sin()

    x = torch.ones(3)
    with fake()(tmp_path) as (silent, _):
        for number, url in enumerate(("http://x", "redis://127.0.0.1:1/0?foo=bar", "redis://h:port", "", silent)):
            monkeypatch.setattr(seals, "_told", set())
            told.clear()
            monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / str(number)))
            monkeypatch.setenv("AOTVIZ_CACHE_URL", url)
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(step, backend="aotviz_eager")(x), step(x))
            said = [str(one.message) for one in told if one.category is CacheWarning]
            assert len(said) == (1 if url else 0), (url, said)
