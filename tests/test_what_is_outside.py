"""What a function does to containers and variables outside of it: refused if a tensor of the trace would get there."""

from __future__ import annotations

import collections
import itertools

import pytest
import torch

import aotviz
from aotviz.ir.refusals import Refused
from tests.doors import alone

kept: list[object] = []
by_size: dict[int, object] = {}
latest: object = None


class Holder:
    def __init__(self):
        self.items = []
        self.calls = 0

    def keeps(self, x):
        self.items.append(x * 2)
        return x + 1

    def counts(self, x):
        self.calls += 1
        return x + 1


class Keeping(torch.nn.Module):
    def forward(self, x):
        kept.append(x)
        return x * 2


def appends_to_a_global(x):
    kept.append(x * 2)
    return x + 1


def assigns_to_a_global_dict(x):
    by_size[x.shape[0]] = x * 3
    return x + 1


def assigns_a_global(x):
    global latest
    latest = x * 2
    return x + 1


def makes_a_global(x):
    global made_by_a_function
    made_by_a_function = x * 2
    return x + 1


def closing_over(found):
    def fn(x):
        found.append(x * 2)
        return x + 1

    return fn


def assigning_outside():
    last = "before"

    def fn(x):
        nonlocal last
        last = x * 2
        return x + 1

    return fn, lambda: last


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (appends_to_a_global, "kept"),
        (assigns_to_a_global_dict, "by_size"),
        (closing_over([]), "found"),
        (Holder().keeps, "self.items"),
        (Keeping(), "kept"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_that_would_leave_by_a_container_is_refused(fn, name):
    with pytest.raises(Refused, match=f"changes what the Python object '{name}' holds") as caught:
        alone(fn)(torch.ones(2, requires_grad=True))
    assert caught.value.reason == "argument is changed"


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (assigns_a_global, "latest"),
        (makes_a_global, "made_by_a_function"),
        (assigning_outside()[0], ".*fn.*last"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_that_would_leave_by_a_variable_is_refused(fn, name):
    with pytest.raises(Refused, match=f"stores a tensor in {name}") as caught:
        alone(fn)(torch.ones(2, requires_grad=True))
    assert caught.value.reason == "tensor is kept"


def test_what_is_outside_is_as_it_was_after_a_refusal():
    found = ["before"]
    assigns, last = assigning_outside()
    holder = Holder()
    for fn in (closing_over(found), assigns, holder.keeps, makes_a_global):
        with pytest.raises(Refused):
            alone(fn)(torch.ones(2))
    assert found == ["before"]
    assert last() == "before"
    assert holder.items == []
    assert "made_by_a_function" not in globals()


def test_plain_values_may_change_outside():
    seen, holder = [], Holder()

    def fn(x):
        seen.append(len(seen))
        return holder.counts(x)

    assert torch.equal(aotviz.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))
    assert seen


def test_a_container_of_tensors_that_is_only_read_is_no_matter():
    table = [torch.zeros(1), {"a": 2}]

    def fn(x):
        return x * table[1]["a"]

    assert torch.equal(aotviz.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))


def test_a_real_tensor_that_somebody_else_puts_into_a_global_meanwhile_is_no_matter(monkeypatch):
    monkeypatch.setitem(globals(), "latest", None)

    def fn(x):
        with torch.utils._python_dispatch._disable_current_modes():
            globals()["latest"] = torch.ones(1)
        return x * 2 if latest is not None else x

    assert torch.equal(aotviz.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))


def counts_by_a_cell():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    return f


def counts_by_its_attribute():
    def f(x):
        f.calls += 1
        return x * f.calls

    f.calls = 0
    return f


class Counts:
    n = 0

    def __call__(self, x):
        self.n += 1
        return x * self.n


@pytest.mark.parametrize("make", [counts_by_a_cell, counts_by_its_attribute, Counts])
def test_a_counter_that_a_function_counts_up_counts_on(make):
    eager, compiled = make(), aotviz.compile(make(), backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), eager(torch.ones(2)))


@pytest.mark.parametrize("iterator", [lambda: iter([1, 2]), lambda: itertools.count(1), lambda: (k for k in range(3))])
def test_an_iterator_is_refused_as_an_argument_and_stays_where_it_is(iterator):
    iterator = iterator()
    before = next(iterator)
    with pytest.raises(aotviz.Refused, match=r"iterator 'it'") as caught:
        alone(lambda x, it: x * next(it))(torch.ones(2), iterator)
    assert caught.value.reason == "argument is changed"
    assert next(iterator) == before + 1


def test_a_queue_that_a_function_takes_from_gives_each_call_the_next():
    queue = collections.deque([1.0, 2.0, 3.0])
    compiled = aotviz.compile(lambda x: x * queue.popleft(), backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
