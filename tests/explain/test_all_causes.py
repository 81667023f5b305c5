"""Every guard that a call failed is named, and first the one that would fail again: live, in logs, of our backends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.reading.recording import Recording
from tests.explain.logs import logged

X = torch.ones(3)


pytestmark = pytest.mark.usefixtures("clean_dynamo")


class Counting(torch.nn.Module):
    """Counts its calls on itself, and keeps a list of them: both are compiled in."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.seen: list[int] = []

    def forward(self, x):
        self.step += 1
        self.seen.append(self.step)
        return x * self.step + len(self.seen)


class Config:
    def __init__(self) -> None:
        self.scale, self.shift = 1, 1


def steps(backend: str) -> None:
    compiled = torch.compile(Counting(), backend=backend)
    for size in (2, 4, 5):
        compiled(torch.ones(size))


def fields(backend: str) -> None:
    config = Config()
    compiled = torch.compile(lambda x, config: x * config.scale + config.shift, backend=backend, dynamic=False)
    compiled(X, config)
    config.scale = config.shift = 2
    compiled(X, config)
    config.shift = 3
    compiled(X, config)


def seen_by(how: str, program, folder: Path) -> Recording:
    if how == "log":
        recording = logged(lambda: program("eager"), folder)
        assert "aotviz_failed_guards" not in (folder / "trace.log").read_text()
        return recording
    if how == "our backend":
        with aotviz.record() as recording:
            program("aotviz_eager")
        return recording
    with aotviz.watch() as recording:
        program("eager")
    return recording


EVERYWHERE = pytest.mark.parametrize("how", ["watch", "log", "our backend"])


@EVERYWHERE
def test_a_counter_is_named_before_the_size_that_becomes_symbolic(how: str, tmp_path: Path) -> None:
    recording = seen_by(how, steps, tmp_path)
    table = recording.recompiles()
    assert list(zip(table.subject, table.before, table.after, strict=True)) == [
        ("self.step", "0", "1"),
        ("self.step", "1", "2"),
    ]
    assert {name.removeprefix("len(").removesuffix(")") for name in table.also[0]} == {"self.seen", "x.shape[0]"}
    assert list(table.also[1]) == ["len(self.seen)"]
    assert "dimension 0 of `x` had size 2 and now has size 4" in table.why[0]
    assert "(symbolic from now on)" in table.why[0]
    assert "`self.seen` had length 1 and now has 2" in table.why[1]
    points = str(recording.explain())
    assert "`self.step` caused both recompiles" in " ".join(points.split())
    assert ("names only the first guard" in " ".join(points.split())) == (how == "log")


@EVERYWHERE
def test_of_two_fields_the_one_that_changes_again_is_the_cause(how: str, tmp_path: Path) -> None:
    table = seen_by(how, fields, tmp_path).recompiles()
    assert list(table.subject) == ["config.shift", "config.shift"]
    assert list(table.also) == [("config.scale",), ()]
    assert list(table.before) == ["1", "2"]
    assert list(table.after) == ["2", "3"]


def test_the_list_of_compilations_names_every_guard() -> None:
    with aotviz.watch() as recording:
        steps("eager")
    assert recording[1].data.because == [
        "guard of 0/0 failed: x.shape[0] changed from 2 to 4; also len(self.seen) == 0 (now 1); "
        "also self.step == 0 (now 1)"
    ]
    assert len(recording[2].data.because) == 2


def changed(first, second, function=lambda x, y, options: x * options["a"] + y, **how) -> tuple[list[str], str]:
    """(what was named, in words) of the recompile by the second call."""
    with aotviz.watch() as recording:
        compiled = torch.compile(function, backend="eager", dynamic=False, **how)
        compiled(*first)
        compiled(*second)
    (row,) = recording.recompiles().itertuples()
    return [row.subject, *row.also], row.why


def test_several_facts_of_one_tensor_are_told_apart() -> None:
    named, why = changed(
        (X, torch.ones(3), {"a": 1}), (X, torch.ones(2, 3, dtype=torch.float64, requires_grad=True), {"a": 1})
    )
    assert set(named) == {"y.dtype", "y.requires_grad", "y.ndim"}
    assert "`y.dtype` was float32 and is now float64" in why


def test_types_keys_functions_and_modes_are_named_together() -> None:
    def program(x, y, options):
        return options["f"](x) * options["a"] + (y if y is not None else 0)

    with torch.no_grad():
        named, why = changed(
            (X, None, {"a": 1, "f": torch.sin}), (X, X.clone(), {"a": 2, "f": torch.cos}), function=program
        )
    assert {"options['a']", "options['f']", "y"} <= set(named)
    assert "`options['f']` is a different object" in why


def test_a_tensor_that_became_a_number_is_named_with_what_else_changed() -> None:
    named, why = changed((X, torch.ones(3), {"a": 1}), (X, 2.0, {"a": 5}))
    assert set(named) == {"y", "options['a']"}
    assert "`y` was a tensor and is now a float" in why


def test_a_module_on_another_device_names_the_device() -> None:
    named, _ = changed((X, X.clone(), {"a": 1}), (X.to("meta"), X.to("meta").clone(), {"a": 1}))
    assert set(named) == {"x.device", "y.device"}


def test_what_a_guard_is_about_is_only_looked_at() -> None:
    """Trying the guards neither changes the program nor runs the user's `__repr__`."""

    class Loud:
        def __init__(self) -> None:
            self.kind = "a"

        def __repr__(self) -> str:
            raise AssertionError("asked for its text")

    with aotviz.watch() as recording:
        compiled = torch.compile(lambda x, y: x + (y.kind == "a"), backend="eager")
        one, other = Loud(), Loud()
        assert compiled(X, one).tolist() == [2, 2, 2]
        other.kind = "b"
        assert compiled(X, other).tolist() == [1, 1, 1]
        assert compiled(X, one).tolist() == [2, 2, 2]
    assert "y.kind" in recording.recompiles().subject[0]


def test_a_recompile_that_reached_the_limit_names_its_guards() -> None:
    with torch._dynamo.config.patch(recompile_limit=2), aotviz.watch() as recording:
        steps("eager")
    limit = recording.recompiles().iloc[-1]
    assert limit.outcome == "limit"
    assert (limit.subject, limit.also) == ("self.step", ("len(self.seen)",))


def test_a_saved_watch_says_the_same(tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        steps("eager")
    recording.save(tmp_path / "kept.aotviz")
    assert str(aotviz.load(tmp_path / "kept.aotviz").explain()) == str(recording.explain())


def test_a_compilation_that_needs_too_much_memory_says_how_much(tmp_path) -> None:
    said = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    said += " of which 3.12 GiB is free."

    def allocates(graph, inputs):
        raise torch.OutOfMemoryError(said)

    def program() -> None:
        torch._dynamo.reset()
        with pytest.raises(Exception, match="out of memory"):
            torch.compile(lambda x: x.sin(), backend=allocates)(torch.ones(3))

    found = logged(program, tmp_path).overview()
    assert found.headline == (
        "`<lambda> [0/0]` failed: the device is out of memory: 20.00 GiB were needed at once, and 3.12 GiB of "
        "79.15 GiB were free."
    )
    assert "error of the backend" not in str(found)
