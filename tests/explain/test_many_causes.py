"""Many functions that are compiled again: what follows from what is found without comparing all points."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from aotviz.explain import chains
from aotviz.explain.explanation import Point
from aotviz.explain.rows import Facts
from aotviz.recording.sources import user_frames
from aotviz.recording.spoken import BEFORE_BREAK
from tests.explain.logs import logged, recording


def functions(count: int, calls: bool = False) -> None:
    """Each is compiled again once, and has two graph breaks; with `calls`, it calls another such function."""
    torch._dynamo.reset()
    for number in range(count):
        names: dict[str, Callable[..., object]] = {"torch": torch}
        code = f"def scale_{number}(x, factor):\n" + "    x = x * factor\n    torch._dynamo.graph_break()\n" * 2
        inner = f"def inner_{number}(x, factor):\n    torch._dynamo.graph_break()\n    return x * factor\n"
        last = f"inner_{number}(x, factor)" if calls else "x * factor"
        text, file = f"{code}    return {last}\n{inner}", f"scales_{number}.py"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # else 2.11 compiles a wrapper
        exec(compile(text, file, "exec"), names)
        compiled = torch.compile(names[f"scale_{number}"], backend="eager", dynamic=False)
        for factor in (2, 3):
            compiled(torch.ones(3), factor)


def is_consequence(facts: Facts, point: Point, cause: Point, broken: set[str]) -> bool:
    """The definition, of two points."""
    if point.failed or not point.ids or not cause.ids:
        return False
    (rest, line), (function, before) = (chains.after(facts, facts.find(one.ids[0])) for one in (point, cause))
    match point.kind, cause.kind:
        case "cache", "recompile":
            return set(point.ids) <= set(cause.ids)
        case "restart", "graph break":
            return set(point.ids) <= broken
        case "recompile", "graph break":
            own = BEFORE_BREAK in point.title and cause.place.endswith(f":{line}")
            return own or is_left_to_itself(facts, facts.find(point.ids[0]), map(facts.find, cause.ids))
        case "recompile", "recompile":
            same = chains.NAMED.sub("", point.cause) == chains.NAMED.sub("", cause.cause)
            at, earlier = (facts.data.compilations[facts.find(one.ids[0])] for one in (point, cause))
            called = {frame.function for frame in user_frames(facts.text(at.stack))[:-1]}
            for one in facts.data.graph_breaks:
                if rest in {frame.function for frame in user_frames(facts.text(one.stack))}:
                    called.add(chains.after(facts, one.origin.compilation)[0])
            by_caller = function in called - {rest} and earlier.started_unix_ns < at.started_unix_ns
            return same and (by_caller or (rest == function and before < line))
    return False


def is_left_to_itself(facts: Facts, place: int, broken: Iterable[int]) -> bool:
    """Whether a function with a graph break called this one, and it was not compiled before for a call from there."""
    paths = [user_frames(facts.text(compilation.stack))[:-1] for compilation in facts.data.compilations]
    above = {(frame.file, frame.function) for frame in paths[place]}
    earlier = (other for other in range(place) if facts.frame(other) == facts.frame(place))
    within = any((facts.frame_place(one).rpartition(":")[0], facts.function(one)) in above for one in broken)
    return within and all(paths[other] != paths[place] for other in earlier)


def causes_by_pairs(facts: Facts, points: Sequence[Point]) -> list[int]:
    broken = {id for point in points if point.kind == "graph break" for id in point.ids}
    return [
        next((n for n, cause in enumerate(points) if n != m and is_consequence(facts, point, cause, broken)), m)
        for m, point in enumerate(points)
    ]


def points_of(facts: Facts, count: int, seed: int) -> list[Point]:
    chosen = random.Random(seed)
    ids = [compilation.id for compilation in facts.data.compilations]
    found = []
    for number in range(count):
        point = Point(
            f"{number}",
            kind=chosen.choice(["recompile", "recompile", "graph break", "cache", "restart", "capture"]),
            title=chosen.choice(["`x` changed", "`y` changed", "a number changed", f"the value {BEFORE_BREAK}"]),
            place=chosen.choice(["", "model.py:3", "model.py:5", "model.py"]),
            ids=tuple(chosen.sample(ids, chosen.choice([0, 1, 1, 2, 3]))),
            failed=chosen.random() < 0.1,
        )
        found.append(point)
    return found


def test_each_point_follows_from_the_first_cause_that_the_definition_names(tmp_path: Path) -> None:
    facts = Facts(*logged(lambda: functions(3, calls=True), tmp_path).rows)
    followed = set()
    for seed in range(100):
        points = points_of(facts, 40, seed)
        known = chains._Causes(facts, points)
        found = [known.of(number) for number in range(len(points))]
        assert found == causes_by_pairs(facts, points)
        followed |= {(points[m].kind, points[n].kind) for m, n in enumerate(found) if m != n}
    assert followed == {
        ("cache", "recompile"),
        ("restart", "graph break"),
        ("recompile", "graph break"),
        ("recompile", "recompile"),
    }


@pytest.mark.parametrize("count", [10, 30])
def test_the_work_grows_with_the_causes_not_with_their_pairs(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = logged(lambda: functions(count), tmp_path)
    looked_at = timed = 0
    after, seconds = chains.after, Facts.seconds

    def counted_after(facts: Facts, place: int) -> tuple[str, int]:
        nonlocal looked_at
        looked_at += 1
        return after(facts, place)

    def counted_seconds(facts: Facts, place: int) -> float:
        nonlocal timed
        timed += 1
        return seconds(facts, place)

    monkeypatch.setattr(chains, "after", counted_after)
    monkeypatch.setattr(Facts, "seconds", counted_seconds)
    read.explain()
    compilations = len(read.data.compilations)
    assert compilations == count * 6
    assert count <= looked_at <= 2 * compilations
    assert timed <= 10 * compilations


def test_a_compilation_is_found_by_its_id_or_by_a_compile_id_that_only_one_has() -> None:
    one, ranks = (Facts(*recording(name).rows) for name in ("training", "ranks"))
    assert [one.find(compilation.id) for compilation in one.data.compilations] == [*range(len(one.data.compilations))]
    assert ranks.data.compilations[ranks.find("rank 1: 0/0")].rank == 1
    with pytest.raises(LookupError, match="several compilations '0/0' in this recording; ask for one of rank 0: 0/0"):
        ranks.find("0/0")
    kept = [ranks.data.compilations[ranks.find("rank 1: 0/0")]]
    alone = Facts(msgspec.structs.replace(ranks.data, compilations=kept), [])
    assert alone.find("0/0") == 0
    with pytest.raises(LookupError, match="no compilation '99/0' in this recording; ask for one of rank 1: 0/0"):
        alone.find("99/0")
