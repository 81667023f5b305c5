"""A trace leaves the garbage collector as it was."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from aotviz.python_state import garbage


@pytest.fixture
def thawed(monkeypatch):
    monkeypatch.setattr(garbage, "_has_frozen", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


def trace() -> None:
    aotviz.aot_function(lambda x: x.sin(), run_graph)(torch.ones(2))


def test_what_a_program_has_frozen_stays_so_and_is_counted_once(thawed, monkeypatch):
    gc.freeze()
    frozen, count, asked = gc.get_freeze_count(), gc.get_freeze_count, []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or count())
    for _ in range(3):
        trace()
    assert count() > frozen * 0.99
    assert len(asked) == 1


def test_what_is_made_inside_counts_as_old(thawed):
    with garbage.counted_as_old():
        made = [[] for _ in range(10)]
    old = {id(one) for one in gc.get_objects(2)}
    assert all(id(one) in old for one in made)
    assert not gc.get_freeze_count()


@pytest.mark.parametrize("collects", [True, False])
def test_whether_the_collector_runs_is_as_before(thawed, collects):
    (gc.enable if collects else gc.disable)()
    try:
        trace()
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def test_a_stage_is_not_collected_and_what_it_drops_is_freed_by_the_next_collection_of_the_young(thawed):
    class Dropped:
        pass

    collected, freed = [], []
    gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
    try:
        with garbage.not_collected():
            for _ in range(2_000):
                one = Dropped()
                one.itself = one
            freed.append(weakref.finalize(one, freed.append, "freed"))
            del one
            assert not collected
        made = [[] for _ in range(gc.get_threshold()[0])]  # so much starts a collection
    finally:
        gc.callbacks.pop()
    assert made
    assert collected[0] == 0
    assert freed[1:] == ["freed"]
