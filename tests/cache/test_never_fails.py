"""Whatever is wrong with the cache, a program is compiled, and its recording says why."""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import aotviz
from aotviz.cache import entry
from aotviz.frontends import cached


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 3).sin()


def answer(folder: Path) -> tuple[str, str]:
    """What the cache answers when a function is compiled, and why."""
    torch._dynamo.reset()
    compiled = aotviz.compile(scaled, backend="eager", cache=folder)
    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(compiled(x), scaled(x))
    compiled(x).sum().backward()
    (row,) = compiled.recording.cache_lookups.to_dict("records")[:1]
    return row["outcome"], str(row["reason"])


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("broken")


@pytest.mark.parametrize(
    ("place", "name", "said"),
    [
        (cached, "of_graph", ("bypass", "its key could not be made (ZeroDivisionError: broken)")),
        (entry, "packed", ("bypass", "it could not be saved (ZeroDivisionError: broken)")),
    ],
    ids=["key", "save"],
)
def test_a_fault_while_it_is_saved_is_a_bypass(
    place: Any, name: str, said: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_dynamo: None
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert answer(tmp_path) == said


@pytest.mark.parametrize("name", ["read", "Reading"])
def test_a_fault_while_it_is_loaded_is_a_miss_and_the_entry_goes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_dynamo: None
) -> None:
    assert answer(tmp_path)[0] == "miss"
    with monkeypatch.context() as patch:
        for module in (entry, cached):
            if hasattr(module, name):
                patch.setattr(module, name, broken)
        outcome, reason = answer(tmp_path)
    assert outcome == "miss"
    assert "ZeroDivisionError" in reason
    assert answer(tmp_path)[0] == "hit"  # what was compiled then was saved


@pytest.mark.parametrize("damage", ["its bytes", "its seal", "what it says"])
def test_an_entry_that_cannot_be_read_is_told_in_the_recording_and_by_explain(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_dynamo: None
) -> None:
    assert answer(tmp_path)[0] == "miss"
    statement = {
        "its bytes": "UPDATE parts SET data = zeroblob(40)",
        "its seal": "UPDATE parts SET checksum = zeroblob(16)",
    }
    if damage in statement:
        with contextlib.closing(sqlite3.connect(tmp_path / "aot.sqlite")) as file, file:
            file.execute(f"{statement[damage]} WHERE name = 'main'")
    else:
        monkeypatch.setattr(entry, "read", broken)
    torch._dynamo.reset()
    with aotviz.record() as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the damage is told by a warning, too
        aotviz.compile(scaled, backend="eager", cache=tmp_path)(torch.ones(3, requires_grad=True))
    (row,) = recording.cache_lookups.to_dict("records")
    expected = "could not be loaded" if damage == "what it says" else "its entry was damaged and has been removed"
    assert row["outcome"] == "miss"
    assert expected in row["reason"]
    said = " ".join(str(recording.explain()).split())
    assert f"`scaled` was compiled again although it was cached before: {row['reason']}" in said


def picked(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sin()


DAMAGED: dict[str, dict[str, Any]] = {
    "no size is known": {"from_data": []},
    "a size of another kind": {"from_data": [["another", 0, 3, True, None]]},
    "a bound without a name": {"from_data": [["int", ["atom", "nothing"], 3, True, None]]},
    "too few facts": {"from_data": [["int", 0]]},
    "a symbol that is not there": {"from_data": [["int", 0, 3, True, ["s", 9]]]},
    "a check of nothing": {"checks": [[["Another", ["s", 0], 0], ""]]},
    "a check without a message": {"checks": [1]},
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_description_of_a_size_from_data_is_a_miss(
    damage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_dynamo: None
) -> None:
    def outcome() -> str:
        torch._dynamo.reset()
        x = torch.tensor([1.0, -2.0, 3.0])
        with aotviz.record() as recording, torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            torch.testing.assert_close(aotviz.compile(picked, backend="eager", cache=tmp_path)(x), picked(x))
        (answer,) = recording.cache_lookups["outcome"]
        return str(answer)

    assert [outcome(), outcome()] == ["miss", "hit"]
    read = entry.read
    with monkeypatch.context() as patch:
        patch.setattr(entry, "read", lambda data: msgspec.structs.replace(read(data), **damage))
        assert outcome() == "miss"
    assert outcome() == "hit"
