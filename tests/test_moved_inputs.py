"""Arguments whose shape or strides a function changes in place, with autograd on and under no_grad: as in eager, or
refused by name. See tracing/argument_state.py."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import aotviz
from tests.oracle import compare
from tests.oracle.strategy import from_source

GIVEN = {
    "a result": "a = torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone().requires_grad_()\n    p = a * 1.5",
    "a thin result": "a = torch.linspace(-1.1, 1.3, 4).reshape(2, 1, 2).clone().requires_grad_()\n    p = a * 1.5",
    "a leaf": "a = p = torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone().requires_grad_()",
    "a leaf that is a view": "a = p = torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).requires_grad_()",
    "a view of a leaf": "a = torch.linspace(-1, 1, 16).reshape(2, 2, 2, 2).clone().requires_grad_()\n    p = a[1]",
    "a view": "a = torch.linspace(-1.1, 1.3, 16).reshape(2, 2, 2, 2).clone().requires_grad_()\n    p = (a * 1.5)[1]",
    "an orphan": "a = torch.linspace(-1.1, 1.3, 16).reshape(2, 2, 2, 2).requires_grad_()\n    p = a[1]",
}
SEEN, TURN, SAME, GROW = (
    "p.transpose_(0, 1)",
    "with torch.no_grad(): p.transpose_(1, 2)",
    "with torch.no_grad(): p.squeeze_()",
    "with torch.no_grad(): p.unsqueeze_(0)",
)
BACK, WRITE, USE = "with torch.no_grad(): p.transpose_(0, 1)", "p.mul_(q)", "v = p.clone().sin()"
HIDDEN = "with torch.no_grad(): p.mul_(2)"
NOTHING = "v = q * 2"
OWNERS = ["a result", "a leaf", "a leaf that is a view"]
VIEWS = ["a view of a leaf", "a view"]


def judged(given, statements):
    body = "\n    ".join(statements)
    text = (
        f"import torch\ndef inputs():\n    {GIVEN[given]}\n    return p, torch.tensor(1.3, requires_grad=True)\n"
        f"def f(p, q):\n    {body}\n    return v\n"
    )
    program = from_source("moved", text)
    return compare.judge(program, compare.CANDIDATES["ours"](), compare.expect(program))


def refusals(verdict):
    return {failure.refusal for _, failure in verdict.failures}


RIGHT = [
    *product(
        OWNERS, [(TURN, USE), (USE, TURN), (TURN, USE, TURN), (TURN, GROW, NOTHING), (SAME, USE), (GROW, NOTHING)]
    ),
    *product(
        ["a result"],
        [
            (SEEN, BACK, NOTHING),
            (SEEN, BACK, USE),
            (BACK, SEEN, USE),
            (BACK, USE, SEEN),
            (SEEN, TURN, USE),
            (TURN, GROW, USE),
            (SEEN, HIDDEN, TURN, NOTHING),
            (TURN, WRITE, USE),
        ],
    ),
    *product(
        VIEWS, [(USE, TURN), (TURN, TURN, USE), (TURN, NOTHING), (HIDDEN, TURN, NOTHING), (SAME, USE), (USE, SAME)]
    ),
    *product(["a view"], [(SEEN, BACK, NOTHING), (SEEN, USE, BACK), (SEEN, SEEN, USE), (SAME, WRITE, USE)]),
    *product(["an orphan"], [(USE, SAME), (SAME, USE), (USE, TURN), (TURN, TURN, USE), (TURN, NOTHING)]),
]


@pytest.mark.parametrize(("given", "statements"), RIGHT)
def test_gradients_are_eagers_where_an_argument_changes_its_shape_or_strides_in_place(given, statements):
    verdict = judged(given, statements)
    assert verdict.status == "equal", str(verdict)


RIGHT.append(("a thin result", (SEEN, HIDDEN, "with torch.no_grad(): p.transpose_(0, 2)", NOTHING)))

MOVED, ORPHAN = "metadata op on a view", "view whose base does not require grad"
REFUSED = [
    *((given, statements, MOVED) for given, statements in product(VIEWS, [(TURN, USE), (TURN, USE, TURN)])),
    *((given, (TURN, "v = p.select(0, 0).clone()"), MOVED) for given in VIEWS),
    *((given, (HIDDEN, TURN, USE), MOVED) for given in VIEWS),
    *(("a view", (*order, NOTHING), MOVED) for order in [(TURN, WRITE), (WRITE, TURN), (SEEN, TURN, WRITE)]),
    *(("a view", (*order, USE), MOVED) for order in [(SEEN, BACK), (BACK, SEEN), (TURN, SEEN)]),
    *((given, ("w = p[0]", TURN, "v = w.clone()"), MOVED) for given in ("a result", "a leaf")),
    *(("an orphan", statements, ORPHAN) for statements in [(USE, SAME, "v = v * p"), (TURN, USE)]),
    ("an orphan", ("w = p[0]", GROW, "v = w.clone()"), ORPHAN),
]


@pytest.mark.parametrize(("statements", "reason"), [((TURN, "v = w * q"), MOVED), (("v = w * q", TURN), None)])
def test_a_view_that_is_passed_beside_an_argument_is_refused_after_that_was_turned_under_no_grad(statements, reason):
    body = "\n    ".join(statements)
    program = from_source(
        "moved",
        f"import torch\ndef inputs():\n    {GIVEN['a result']}\n    return p, p.view(-1), torch.tensor(1.3)\n"
        f"def f(p, w, q):\n    {body}\n    return v\n",
    )
    verdict = compare.judge(program, compare.CANDIDATES["ours"](), compare.expect(program))
    assert verdict.status == ("raised" if reason else "equal"), str(verdict)
    assert refusals(verdict) == ({reason} if reason else set())


@pytest.mark.parametrize(("given", "statements", "reason"), REFUSED)
def test_what_a_trace_would_differentiate_otherwise_than_eager_is_refused_by_name(given, statements, reason):
    verdict = judged(given, statements)
    assert verdict.status == "raised", str(verdict)
    assert refusals(verdict) == {reason}


@pytest.mark.parametrize("used", [False, True])
def test_the_gradient_of_a_leaf_that_was_used_before_it_moved_has_the_shape_from_before(used):
    def f(x):
        unused = x.sin() if used else None  # noqa: F841
        with torch.no_grad():
            x.unsqueeze_(0)
        return x[...]

    def shape(fn):
        x = torch.ones(4, 1).requires_grad_()
        return torch.autograd.grad(fn(x).sum(), x)[0].shape

    assert shape(aotviz.aot_function(f, lambda graph, _: graph)) == shape(f)


@pytest.mark.parametrize("between", ["nothing", "a move that autograd sees", "a write that it does not see"])
def test_the_gradient_that_an_input_retains_has_the_shape_in_which_autograd_saw_it_last(between):
    def f(x):
        x.diagonal().neg_()
        if between == "a move that autograd sees":
            x.t_()
        with torch.no_grad():
            x.unsqueeze_(0)
        if between == "a write that it does not see":
            x.detach().mul_(0.5)
        return x

    def gradient(fn):
        x = torch.linspace(-1, 1, 9, requires_grad=True).view(3, 3) * 1.5
        fn(x)
        x.retain_grad()
        x.exp().sum().backward()
        return x.grad

    expected = gradient(f)
    assert expected.shape == (3, 3)
    torch.testing.assert_close(gradient(aotviz.aot_function(f, lambda graph, _: graph)), expected)


def test_a_view_that_moves_under_no_grad_beside_another_that_is_saved_has_the_grad_fn_of_where_it_lies():
    def f(x, y):
        twice = torch.cat([y, y])
        with torch.no_grad():
            y.t_()
        return twice, torch.relu(x.t())

    def gradient(fn):
        leaf = torch.linspace(-1, 1, 12, requires_grad=True)
        whole = leaf.view(3, 4).clone()
        x, y = whole[:, 1:], whole[:, 1:2]
        twice, positive = fn(x, y)
        total = twice.sum() + positive.sum() + (x * 2).sum() + (y * 3).sum()
        return torch.autograd.grad(total, leaf)

    torch.testing.assert_close(gradient(aotviz.aot_function(f, lambda graph, _: graph)), gradient(f))
