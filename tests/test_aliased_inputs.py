"""Inputs over one memory, one of them written: whatever their dtypes and histories, eager's result."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from tests.oracle.compare import CANDIDATES, judge
from tests.oracle.strategy import from_source
from tests.tiers import in_turns

LEAF = "a = torch.linspace(-1.1, 1.3, 8).requires_grad_()"
GROWN = f"{LEAF}; a = a * 1.5"
PLAIN = "a = torch.linspace(-1.1, 1.3, 8)"

# Inputs that overlap, and others of the same storage that overlap none of them.
APART = {
    f"{what}, {history}": (f"{setup.replace('8', '24')}; a = a.view(2, 3, 4)", *case)
    for history, setup in {"with no history": PLAIN, "with a history": GROWN}.items()
    for what, case in {
        "written beside a group": (
            "a[:, 0], a[:, 1], a[:, 1:]",
            "p.mul_(2)",
            "q.mul_(3)",
            "return p @ r[:, 0].T",
        ),
        "written twice beside a group that is only read later": (
            "a[:, 0], a[:, 1], a[:, 1:]",
            "p.mul_(2)",
            "q.sin_()",
            "p.add_(q)",
            "return p * 1, r.sum()",
        ),
        "read beside a group": ("a[:, 0], a[:, 1], a[:, 1:]", "q.mul_(3)", "return p * r[:, 0], p"),
        "two groups": (
            "a[0], a[0, 1:], a[1], a[1, :2]",
            "p.mul_(2)",
            "s.mul_(q[:2].clone())",
            "return (q * 3).sum() + (r * s.sum()).sum(), q[1]",
        ),
        "two groups and one by itself": (
            "a[:, 0], a[:, 0, 1:], a[0, 1], a[0, 1:, :2], a[1, 2]",
            "p.mul_(2)",
            "s.mul_(3)",
            "t.sigmoid_()",
            "return q * 3, r * t, s",
        ),
        "a group of two dtypes": (
            "a[0], a[0].view(torch.int32), a[1]",
            "p.mul_(2)",
            "r.mul_(p.clone())",
            "return q + 1, r * 2",
        ),
        "a detached group": (
            "a[0], a.detach()[0, 1:], a[1, 1:], a.detach()[1]",
            "p.mul_(2)",
            "s.mul_(3)",
            "return q + 1, r * 2, p * s",
        ),
        "a detached one by itself": (
            "a[0], a[0, 1:], a.detach()[1]",
            "p.mul_(2)",
            "r.mul_(3)",
            "return q + 1, r * 2",
        ),
        "another view of the base is read": (
            "a[0], a[0, 1:], a[1, 1:], a[1, 0]",
            "q.mul_(2)",
            "s.mul_(q[0].clone())",
            "return p * 1.5, r * s",
        ),
        "the halves of a tensor": ("a[0], a[1]", "p.mul_(2)", "p.sin_()", "return q * q, p * 1.5"),
        "the halves of a tensor, one moved": ("a[0], a[1]", "p.mul_(2)", "p.t_()", "return q * q, p"),
    }.items()
}  # fmt: skip

# name: (what makes the inputs, the inputs, the function's lines)
CASES = {
    "another dtype is written": (PLAIN, "a, a.view(torch.int32)", "q.add_(1)", "return p * 2, q"),
    "a larger dtype is written": (PLAIN, "a[2:], a.view(torch.float64)[1:]", "q.mul_(2)", "return p * 2, q[:1]"),
    "a smaller dtype is written": (PLAIN, "a[1:4], a.view(torch.int8)", "q[::4] = 1", "return p * 2"),
    "pairs of a complex tensor are written": (
        f"{PLAIN}; z = torch.view_as_complex(a.view(4, 2))",
        "z, torch.view_as_real(z)",
        "q.mul_(2)",
        "return p * p, q[1]",
    ),
    "the imaginary part of a conjugate is written": (
        "z = torch.view_as_complex(torch.linspace(-1, 1, 8).view(4, 2).requires_grad_()) * 2",
        "z, z.conj().imag",
        "q.mul_(3)",
        "return (p * p).real, q",
    ),
    "a complex view with a history is written": (
        GROWN,
        "a, torch.view_as_complex(a.view(-1, 2))",
        "q.mul_(2)",
        "return p * p",
    ),
    "bits of a tensor with a history are written": (GROWN, "a, a.view(torch.int32)", "q.add_(1)", "return p * p"),
    "a detached alias is written with a history": (GROWN, "a, a.detach()", "q.mul_(p)", "return p * 3, q"),
    "a detached view is written with a history": (
        GROWN,
        "a, a.detach()[1:5]",
        "q.mul_(p[:4].clone())",
        "return p * q.sum(), q[1:]",
    ),
    "one that had no history, and shares no counter": (GROWN, "a, a.data", "q.mul_(2)", "return p * 3, q"),
    "a leaf over the memory of another tensor": (
        f"{GROWN}; w = a.detach().requires_grad_()",
        "a, w",
        "p.mul_(q.clone())",
        "return p + q, q * 2",
    ),
    "two leaves over one memory": (
        f"{LEAF}; w = a.detach()[2:6].requires_grad_()",
        "a, w",
        "with torch.no_grad(): p.mul_(2)",
        "return p.sin() * 3, q * q",
    ),
    "a leaf that is a view": (f"{PLAIN}; w = a[2:6].requires_grad_()", "a, w", "p.mul_(2)", "return p * 3, q * q"),
    "two histories are both written": (
        f"{GROWN}; b = (torch.ones(8).requires_grad_() * 2); b.data = a.data[:8]",
        "a, b[1:5]",
        "p.mul_(2)",
        "q.mul_(p[:4].clone())",
        "return p * 1, q * 2",
    ),
    "the same tensor twice, and its view": (f"{GROWN}; v = a[1:]", "a, v, a", "q.mul_(2)", "return p * r, p is r"),
    "a gradient that does not come in is laid out as the others": (
        "a = torch.linspace(-1.1, 1.3, 8).view(2, 4).requires_grad_() * 1.5",
        "a, a.t(), a.view(-1)[2:6]",
        "q.mul_(2)",
        "with torch.no_grad(): p.mul_(2)",
        "return p * 1.5, q * 1.5, r[1:]",
    ),
    **APART,
    "one history, and no element shared": (
        f"{GROWN}; w = torch.ones(2).requires_grad_()",
        "w, a[4:], a[:2]",
        "r.mul_(p)",
        "return q.exp()",
    ),
    "one history, and a view from before the write": (
        f"{GROWN}; w = torch.ones(2).requires_grad_() * 2",
        "w, a[4:], a[:2]",
        "v = q[1:]",
        "r.mul_(p)",
        "return v.exp(), q",
    ),
    "one history, and what was written knows of no other": (
        f"{GROWN}; w = torch.ones(2).requires_grad_()",
        "w, a[4:], a[:2]",
        "r.mul_(p.detach())",
        "return q.exp()",
    ),
    **{
        f"{where} is written and seen through as_strided, {history}": (setup, f"{passed}, 0", *body)
        for history, setup in {"with no history": PLAIN, "with a history": GROWN}.items()
        for passed in ("a[1:]", "a[::2]", "a[2:6].view(2, 2).t()")
        for where, body in {
            f"{passed}, before": ("v = p.as_strided((2,), (2,), 2)", "p.mul_(2)", "return v.sin(), p * 3"),
            f"{passed}, after": ("p.mul_(2)", "return p.as_strided((2,), (2,), 2), p * 3"),
            f"{passed}, where it begins,": ("v = p[1:]", "p.mul_(2)", "return v.as_strided((2,), (2,)).sin()"),
        }.items()
    },
    **{
        f"a view of {passed} is contiguous only if it lies so, {history}": (
            setup.replace("8", "16"),
            f"{passed}, 0",
            *body,
        )
        for history, setup in {"with no history": PLAIN, "with a history": GROWN}.items()
        for passed, body in {
            "a.view(8, 2)[:, :1]": ("p.mul_(2)", "v = p.t()", "return v.contiguous(), v"),
            "a.view(4, 4)[:, ::2]": ("p.mul_(2)", "return p[0].contiguous() * 1, p[1].reshape(2, 1), p"),
            "a.view(4, 4)[::2]": ("v = p.t()[0]", "p.sin_()", "return v.reshape(2, 1), v"),
            "a[::2]": ("p.mul_(2)", "p.unsqueeze_(0)", "v = p[0]", "return v.contiguous(), p[0:].reshape(-1), p"),
        }.items()
    },
    "a view of what moved is contiguous only if it lies so": (
        PLAIN,
        "a[::4], 0",
        "p.unsqueeze_(0)",
        "v = p[0]",
        "p.mul_(2)",
        "return v.contiguous(), p[:, 1:].reshape(1)",
    ),
    "resized to the size that it has": (
        PLAIN,
        "a.view(2, 4)[:, 0], a",
        "p.resize_(2)",
        "p[0].mul_(2)",
        "p.mul_(3)",
        "return q + 1, p",
    ),
    "moved beside a group": (
        f"{PLAIN}; a = a.view(2, 4)",
        "a[0], a[0, 1:], a[1].view(2, 2)",
        "q.mul_(2)",
        "r.t_()",
        "r.mul_(3)",
        "return p * 1.5, r",
    ),
    "gaps": (PLAIN, "a.view(2, 4)[:, :3], a.view(torch.int32)[::3]", "p.mul_(2)", "return q + 1, p[:, ::2]"),
}


def program(name: str):
    setup, passed, *body = CASES[name]
    setup, lines = "; ".join(["import torch", setup]), "".join(f"    {line}\n" for line in body)
    text = f"import torch\n\n\ndef inputs():\n    {setup}\n    return ({passed},)\n\n\n"
    text += f"def f(p, q, r=None, s=None, t=None):\n{lines}"
    return from_source(name, text)


@pytest.mark.parametrize(("name", "candidate"), in_turns(CASES, ["ours", "ours-keep", "ours-compile"], every=2))
def test_inputs_over_one_memory_equal_eager(name, candidate):
    verdict = judge(program(name), CANDIDATES[candidate]())
    if verdict.status == "raised" and candidate == "ours-compile":
        assert judge(program(name), CANDIDATES["dynamo-eager"]()).status == "raised", "what Dynamo can't capture"
        return
    assert verdict.status == "equal", f"{verdict}\n{program(name).source}"


@pytest.mark.parametrize("name", APART)
def test_nothing_is_lost_beside_a_group_behind_dynamo(name):
    verdict = judge(program(name), CANDIDATES["ours-backend"]())
    assert verdict.status == "equal", f"{verdict}\n{program(name).source}"


def test_a_saved_half_that_the_caller_writes_is_noticed():
    whole = torch.linspace(-1.1, 1.3, 8).requires_grad_() * 1.5

    def f(p, q):
        p.mul_(2)
        return q * q

    p, q = whole[:4], whole[4:]
    out = aotviz.aot_function(f, lambda graph, _: graph)(p, q)
    with torch.no_grad():
        q.add_(1)
    with pytest.raises(aotviz.Refused, match="q was written after the call of f"):
        out.sum().backward()


def test_a_place_beside_an_argument_is_refused_where_its_history_would_be_another():
    def f(p):
        view = p.as_strided((2,), (2,), 2)  # p has none of these elements
        p.mul_(2)
        return view.sin()

    whole = torch.linspace(-1.1, 1.3, 8).requires_grad_() * 1.5
    with pytest.raises(aotviz.Refused, match="as_strided"):
        aotviz.aot_function(f, lambda graph, _: graph)(whole[1::2])
    run = aotviz.aot_function(f, lambda graph, _: graph)
    torch.testing.assert_close(run(torch.arange(8.0)[1::2]), f(torch.arange(8.0)[1::2]))


def test_list_operators_count_what_they_write_of_an_input_by_its_views():
    def parts(x, w):
        torch._foreach_add_([x[:2], x[2:]], 1.0)
        return x * w

    eager, ours = torch.ones(5), torch.ones(5)
    w = torch.ones(5, requires_grad=True)
    torch.testing.assert_close(aotviz.aot_function(parts, lambda graph, _: graph)(ours, w), parts(eager, w))
    torch.testing.assert_close(ours, eager)
    assert ours._version == eager._version == 2


def test_a_view_under_no_grad_of_an_argument_is_taken_after_what_its_alias_wrote_was_counted():
    def f(data, alias, x):
        alias.mul_(0.5)
        with torch.no_grad():
            view = x.view_as(x)
        data.zero_()
        return view

    def called(fn):
        x = torch.ones(3, requires_grad=True) * 1.5
        view = fn(x.data, x.detach(), x)
        return view, view.grad_fn is None, view.requires_grad, x._version, view._version

    assert str(called(aotviz.aot_function(f, lambda graph, _: graph))) == str(called(f))


def test_an_argument_is_written_under_no_grad_after_another_part_of_its_base_was_given_a_history():
    def f(part, other, w):
        other.mul_(w)
        with torch.no_grad():
            part.mul_(0.5)

    def called(fn):
        whole, w = torch.linspace(-1, 1, 12).view(3, 4), torch.ones(4, requires_grad=True)
        part, other = whole[2], whole[:2]
        fn(part, other, w)
        return whole, part, torch.autograd.grad((whole * whole).sum(), w), part._version

    torch.testing.assert_close(called(aotviz.aot_function(f, lambda graph, _: graph)), called(f))


def test_a_slice_that_was_written_is_added_to_itself_through_a_detached_alias():
    def f(x):
        x.view(-1).mul_(0.5)
        x.detach().add_(x)
        return x * 2

    ours, eager = torch.arange(8.0)[1:3], torch.arange(8.0)[1:3]
    torch.testing.assert_close(aotviz.aot_function(f, lambda graph, _: graph)(ours), f(eager))
    torch.testing.assert_close(ours._base, eager._base)


@pytest.mark.parametrize("taken", [lambda t: t.narrow(0, 0, 3), lambda t: t[1:], lambda t: t.detach()[1:]])
@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_no_gradient_flows_through_a_view_that_was_taken_under_no_grad(door, taken):
    """What is computed from it is right, or refused: autograd forbids to use such a view after the write."""

    def function(x, v):
        (x if len(v) == 3 else x[1:]).sub_(v, alpha=0.5)

    def through(fn):
        return (
            aotviz.aot_function(fn, run_graph) if door == "aot_function" else torch.compile(fn, backend="aotviz_eager")
        )

    found = []
    for fn in (function, through(function)):
        leaf = torch.linspace(-1, 1, 6).reshape(3, 2).requires_grad_()
        x = leaf * 1.5
        with torch.no_grad():
            v = taken(x)
        try:
            fn(x, v)
        except aotviz.Refused as refused:
            found.append(found[0] if refused.reason == "stale view" else refused.reason)
        else:
            found.append(torch.autograd.grad(x.sum(), leaf)[0].tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("places", [(5, 0), (0, 5)])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_that_shares_no_element_with_what_is_written_gets_its_history(places, grad):
    """Its base requires grad since the write, and so does it: in eager, zeros reach the written value."""

    def fn(value, written, used):
        written.add_(value)
        return used * 2

    def ran(call):
        value = torch.ones((), requires_grad=True)
        base = torch.linspace(-1, 1, 6)
        base = base.requires_grad_() * 1 if grad else base
        result = call(value, *(base.narrow(0, place, 1) for place in places))
        result.sum().backward()
        return result.requires_grad, value.grad, base.requires_grad

    assert ran(aotviz.aot_function(fn, lambda graph, _: graph)) == ran(fn) == (True, torch.tensor(0.0), True)
