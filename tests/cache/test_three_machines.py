"""What one machine compiled, others find: by a Redis server and by a file, with Inductor and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.redis_server import Server
from tests.cache.three_machines import Machine, by_file, by_server
from tests.tiers import slow

SECRET = {"AOTVIZ_CACHE_KEY": "a secret for this test"}
GRAPHS = {"aotviz": 2, "aotviz_eager": 0}  # that come from Inductor's cache after a hit: a forward and a backward


@pytest.mark.parametrize(
    ("backend", "secret"),
    [("aotviz_eager", {}), slow("aotviz", SECRET)],
    ids=["eager", "Inductor, signed"],
)
def test_three_machines_share_a_server(server: Server, tmp_path: Path, backend: str, secret: dict[str, str]) -> None:
    found = by_server(tmp_path, server.url, backend, **secret)
    assert [one["outcome"] for one in found] == ["miss", "hit", "hit"]
    assert [one["loaded"] for one in found] == [0, GRAPHS[backend], GRAPHS[backend]]
    assert [one["equal"] for one in found] == [True] * 3
    assert [one["told"] for one in found] == [[]] * 3


@pytest.mark.parametrize(
    ("backend", "how"),
    [("aotviz_eager", "signed"), *(slow("aotviz", how) for how in ("signed", "trusted", "as data"))],
)
def test_an_export_is_found_on_another_machine(tmp_path: Path, backend: str, how: str) -> None:
    arguments = ["--trust-code"] if how == "trusted" else []
    environment = SECRET if how == "signed" else {}
    found = by_file(tmp_path, backend, *arguments, **environment)
    assert [one["outcome"] for one in found] == ["miss", "hit", "hit"]
    first = 0 if how == "as data" else GRAPHS[backend]
    assert [one["loaded"] for one in found] == [0, first, GRAPHS[backend]]
    assert [one["equal"] for one in found] == [True] * 3


@pytest.mark.slow
def test_a_machine_that_lost_its_code_compiles_it_and_removes_nothing(server: Server, tmp_path: Path) -> None:
    first = Machine(tmp_path / "first", AOTVIZ_CACHE_URL=server.url)
    assert first.calls("aotviz")["outcome"] == "miss"
    alone = Machine(tmp_path / "first", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty"))
    found = alone.calls("aotviz")
    assert (found["outcome"], found["loaded"], found["equal"]) == ("hit", 0, True)
    assert Machine(tmp_path / "third", AOTVIZ_CACHE_URL=server.url).calls("aotviz")["loaded"] == 2
