"""What a function does to an input besides writing it: `requires_grad_()`, `detach_()`, `x.data = ...`."""

from __future__ import annotations

import warnings

import pytest
import torch

import aotviz
from aotviz.frontends import backend
from aotviz.lowerings import run_graph
from aotviz.torch_private import versions
from tests.doors import alone
from tests.oracle.compare import CANDIDATES, judge
from tests.oracle.strategy import from_source
from tests.tiers import in_turns

LEAF = "a = torch.linspace(-1.1, 1.3, 8).requires_grad_()"
GROWN = f"{LEAF}; a = a * 1.5"
PLAIN = "a = torch.linspace(-1.1, 1.3, 8)"
OTHER = "w = torch.ones(8).requires_grad_()"

# name: (what makes the inputs, the inputs, the function's lines)
CASES = {
    "turned on after a use": (PLAIN, "a", "y = p * 2", "p.requires_grad_()", "return p * y, y"),
    "turned on by the attribute": (PLAIN, "a", "p.requires_grad = True", "return p * p"),
    "turned on and returned with a view": (PLAIN, "a", "p.requires_grad_()", "return p, p[1:], p * 2"),
    "written, then turned on": (PLAIN, "a", "p.mul_(2)", "p.requires_grad_()", "return p * p"),
    "turned on, then written under no_grad": (
        PLAIN,
        "a",
        "p.requires_grad_()",
        "with torch.no_grad(): p.mul_(2)",
        "return p * p",
    ),
    "turned on beside one that requires grad": (
        f"{PLAIN}; {OTHER}",
        "a, w",
        "y = p * q",
        "p.requires_grad_()",
        "return p * q + y, y",
    ),
    "turned on, and no output depends on it": (PLAIN, "a", "p.requires_grad_()", "return p.detach() * 2"),
    "turned on under no_grad": (PLAIN, "a", "with torch.no_grad(): y = p.requires_grad_() * 2", "return y"),
    "a view is turned on": (PLAIN, "a[2:]", "p.requires_grad_()", "return p * 2"),
    "a view from before stays inside": (PLAIN, "a", "y = p[1:]", "p.requires_grad_()", "return p[1:] * y"),
    "a leaf is turned on again": (LEAF, "a", "p.requires_grad_()", "return p * 2"),
    "turned on though it has a history": (GROWN, "a", "p.requires_grad_()", "return p * 2"),
    "turned off after a use": (LEAF, "a", "y = p * 2", "p.requires_grad_(False)", "return p * y, y"),
    "turned off between two views": (LEAF, "a", "y = p[1:]", "p.requires_grad_(False)", "return p, y, p[2:]"),
    "turned off, then written": (LEAF, "a", "y = p * 2", "p.requires_grad_(False)", "p.mul_(3)", "return p * y, y"),
    "turned off under no_grad": (
        LEAF,
        "a",
        "with torch.no_grad(): y = p * 2; p.requires_grad_(False)",
        "return p * y, y",
    ),
    "detached after a use": (GROWN, "a", "y = p * 2", "p.detach_()", "return p * y, y, p"),
    "a leaf is detached": (LEAF, "a", "y = p * 2", "p.detach_()", "return p * y, y, p"),
    "written with a history, then detached": (
        GROWN,
        "a",
        "p.mul_(3)",
        "y = p * 2",
        "p.detach_()",
        "return p * y, y, p",
    ),
    "detached, then written": (GROWN, "a", "y = p * 2", "p.detach_()", "p.mul_(3)", "return p * y, y, p[1:]"),
    "detached after a view was used": (GROWN, "a", "y = p[1:]", "y2 = y * 2", "p.detach_()", "return p * 2, y2, p[1:]"),
    "detached though it has no history": (PLAIN, "a", "y = p * 2", "p.detach_()", "return p * y, y, p"),
    "detached, and its alias is written": (GROWN, "a, a.detach()", "p.detach_()", "q.mul_(2)", "return p * 2"),
    "data of a plain input": (PLAIN, "a", "p.data = p * 2", "return p + 1"),
    "data of a parameter, as in a step of gradient descent": (
        LEAF,
        "a",
        "y = p * p",
        "p.data = p.data - 0.1",
        "return (y * p).sum()",
    ),
    "data of a parameter that is returned": (LEAF, "a", "p.data = p * 2", "return p * p, p"),
    "data of an input with a history": (GROWN, "a", "y = p * 2", "p.data = p * 2 + 1", "return p * y, p[1:]"),
    "data of another shape": (PLAIN, "a", "p.data = p[:3] * 2", "return p * 2"),
    "data, and a view from before": (PLAIN, "a", "v = p[1:]", "p.data = p * 2", "return v, p[1:], v * 2"),
    "data, then a write": (PLAIN, "a", "p.data = p * 2", "p.add_(1)", "return p * 2"),
    "a write, then data": (PLAIN, "a", "p.add_(1)", "p.data = p * 2", "return p * 2"),
    "data of an intermediate": (LEAF, "a", "y = p * 2", "z = y * y", "y.data = p + 1", "return z, y, y * 2"),
    "data of an intermediate whose view is returned": (LEAF, "a", "y = p * 2", "y.data = p + 1", "return y[1:], y * 2"),
    "data that is returned too": (LEAF, "a", "z = p * 2", "p.data = z", "return z, p * 2"),
    "data twice": (LEAF, "a", "p.data = p * 2", "p.data = p * 3", "return p * 2"),
    "set_ to itself": (PLAIN, "a", "p.set_(p)", "return p * 2"),
    "set_ to an alias of itself, then written": (PLAIN, "a", "p.set_(p.detach())", "p.mul_(2)", "return p * 2, p[1:]"),
    "written, then set_ to itself": (PLAIN, "a", "p.mul_(2)", "p.set_(p)", "return p * 2"),
    "set_ of an intermediate to itself": (LEAF, "a", "y = p.detach() * 2", "y.set_(y)", "return y, y[1:], p * y"),
    "data made from another input": (f"{LEAF}; {OTHER}", "a,w", "p.data = q * 2", "return p * 2"),
}


# A view, or an alias, that is made to require grad and returned: it is a leaf, and lies where it did.
NEW_LEAVES = {
    "an alias of a view": ["return p[:2].detach().requires_grad_()"],
    "an alias": ["y = p.detach().requires_grad_()", "return y, p * 2, y"],
    "an alias by .data": ["return p.data.requires_grad_()"],
    "a view": ["y = p.view(2, -1)", "y.requires_grad_()", "return y"],
    "a view, with others": ["y = p.view(2, -1)", "z = p.view(-1)", "y.requires_grad_()", "return y, z, p"],
    "two views": ["return p.view(2, -1).requires_grad_(), p[1:].requires_grad_()"],
    "an alias of a view, and views of it": [
        "y = p[:2].detach().requires_grad_()",
        "return y, y.view(1, 2), y.detach()",
    ],
    "views of an alias only": ["return p.detach().requires_grad_().view(2, -1)[0]"],
    "an alias under no_grad": ["with torch.no_grad(): y = p[2:].requires_grad_()", "return y"],
    "an alias that is written afterwards": [
        "y = p[:2].detach().requires_grad_()",
        "with torch.no_grad(): y.mul_(2)",
        "return y",
    ],
    "an alias that was written before": ["y = p[:2].detach()", "y.mul_(2)", "return y.requires_grad_(), p * 2"],
    "an alias of what is written afterwards": [
        "y = p[:2].detach().requires_grad_()",
        "with torch.no_grad(): p.add_(1)",
        "return y, p * 2",
    ],
    "an alias of a view of an intermediate": ["return (p * 2)[:2].detach().requires_grad_()"],
    "an alias of an intermediate that is returned": ["t = p * 2", "return t.detach()[1:].requires_grad_(), t"],
    "a view of an intermediate that is returned": ["t = p.detach() * 2", "return t.view(2, -1).requires_grad_(), t"],
    "an alias with a hook": [
        "y = p[:2].detach().requires_grad_()",
        "y.register_hook(lambda g: g * 2)",
        "return y, p * 2",
    ],
    "an alias turned off again": ["y = p[:2].detach().requires_grad_()", "y.requires_grad_(False)", "return y, p * 2"],
    "an alias, and what was computed from it, detached": [
        "y = p[:2].detach().requires_grad_()",
        "return y, (y * 2).detach()",
    ],
}
CASES |= {
    f"{name} made to require grad, of {kind}": (setup, "a", *body)
    for name, body in NEW_LEAVES.items()
    for kind, setup in (("a plain input", PLAIN), ("a leaf", LEAF), ("an input with a history", GROWN))
}


def program(name: str):
    setup, passed, *body = CASES[name]
    lines = "".join(f"    {line}\n" for line in body)
    text = f"import torch\n\n\ndef inputs():\n    {setup}\n    return ({passed},)\n\n\ndef f(p, q=None):\n{lines}"
    return from_source(name, text)


@pytest.mark.parametrize(("name", "candidate"), in_turns(CASES, ["ours", "ours-keep", "ours-compile"], every=2))
def test_what_is_done_to_an_input_is_what_eager_does(name, candidate):
    verdict = judge(program(name), CANDIDATES[candidate]())
    if verdict.status == "wrong" and candidate == "ours-compile":
        assert judge(program(name), CANDIDATES["dynamo-eager"]()).status == "wrong", "what Dynamo captures wrongly"
        return
    assert verdict.status == "equal", f"{verdict}\n{program(name).source}"


def test_gradients_accumulate_in_the_leaf_that_the_input_became():
    def loss(x):
        return (x.requires_grad_() ** 2).sum()

    compiled, x = aotviz.compile(loss, backend="eager"), torch.ones(2)
    compiled(x).backward()
    compiled(x).backward()
    assert x.is_leaf
    assert x.grad.tolist() == [4, 4]
    assert len(compiled.recording.compilations) == 2  # the second call's input requires grad from the start


def test_the_wrapper_says_why_it_touches_the_input():
    def step(x):
        y = x * 2
        x.detach_()
        return y, x + 1

    compiled = alone(step)
    compiled(torch.ones(2, requires_grad=True) * 2)
    assert "    # x no longer requires grad\n    x.detach_()\n" in compiled.source
    compiled = alone(lambda x: x.requires_grad_() * 2)
    compiled(torch.ones(2))
    assert "    # the function makes x require grad\n    x.requires_grad_()\n" in compiled.source


def makes_a_leaf(x):
    start = torch.zeros(3).requires_grad_()
    return x * 2, start, start


def makes_a_leaf_of_what_it_computed(x):
    return (x.detach() * 2).requires_grad_()


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", [makes_a_leaf, makes_a_leaf_of_what_it_computed])
def test_a_leaf_that_the_function_makes_and_returns_is_a_leaf(fn, requires_grad, mode):
    def run(call):
        x = torch.ones(3, requires_grad=requires_grad)
        with mode():
            result = call(x)
        outs = result if isinstance(result, tuple) else (result,)
        sum(out.sum() for out in outs).backward()
        return [(o.requires_grad, o.is_leaf, o._version, o.grad.tolist() if o.is_leaf and o.grad is not None else None)
                for o in outs], None if x.grad is None else x.grad.tolist()  # fmt: skip

    assert run(aotviz.compile(fn, backend="eager", debug=True)) == run(fn)


def uses_the_leaf(x):
    y = x[:2].detach().requires_grad_()
    return y, y * 2


def returns_views_of_a_new_leaf(x):
    y = torch.zeros(3).requires_grad_()
    return y, y[1:] * x[1:]


@pytest.mark.parametrize("fn", [uses_the_leaf, returns_views_of_a_new_leaf])
def test_a_new_leaf_that_is_returned_with_what_was_computed_from_it_is_refused_by_name(fn):
    with pytest.raises(aotviz.Refused) as caught:
        aotviz.aot_function(fn, run_graph)(torch.ones(3))
    assert caught.value.reason == "a new leaf is returned"


class Converting(torch.nn.Module):
    """Sees to the dtype of a part of it in each call, as some routers of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier.to(x.dtype)(x).sin()


DOORS = {
    "compile": lambda f: aotviz.compile(f, backend="eager"),
    "aot_function": lambda f: aotviz.aot_function(f, run_graph),
    "torch.compile": lambda f: torch.compile(f, backend="aotviz_eager", options={"on_refusal": "raise"}),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_module_that_converts_a_part_of_it_to_the_dtype_that_it_has(door):
    module, x = Converting(), torch.ones(1, 2)
    weight = module.classifier.weight
    for there in (None, torch.zeros(2, 2)):  # the second time, it has a gradient when it is compiled
        compiled = DOORS[door](module)
        weight.grad = there
        compiled(x).sum().backward()
        found, weight.grad = weight.grad, None
        module(x).sum().backward()
        assert torch.equal(found, weight.grad)
        assert module.classifier.weight is weight


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_tensor_is_assigned_to_its_own_data(requires_grad):
    def f(x):
        x.data = x.data
        y = x * 2
        y.data = y
        y.data = y.detach()
        return y, y.view(2)

    x, own = (torch.ones(2, requires_grad=requires_grad) for _ in range(2))
    out, expected = aotviz.aot_function(f, run_graph)(x), f(own)
    assert all(map(torch.equal, out, expected))
    assert x._version == own._version
    assert out[1]._base is out[0]


def test_an_alias_from_before_is_not_the_tensor_itself_once_that_lies_elsewhere():
    def of_an_input(x):
        old = x.detach()
        x.data = x * 3
        x.data = old
        return x * 2

    def of_an_intermediate(x):
        y = x * 2
        old = y.detach()
        y.data = x * 3
        y.data = old
        return y * 2

    for f in (of_an_input, of_an_intermediate):
        with pytest.raises(aotviz.Refused) as caught:
            aotviz.aot_function(f, run_graph)(torch.ones(2))
        assert caught.value.reason == "data is assigned"


def test_a_leaf_that_is_passed_twice_is_a_leaf_under_both_names():
    def f(x, same):
        same.grad_fn is None or same.register_hook(lambda gradient: gradient * 0.5)
        return x * 2 if same.is_leaf and x.is_leaf else x * 5

    for scale in (None, 3):
        found = []
        for fn in (aotviz.aot_function(f, run_graph), f):
            passed = torch.ones(2, requires_grad=True)
            passed = passed if scale is None else passed * scale
            found.append(torch.autograd.grad(fn(passed, passed).sum(), passed))
        torch.testing.assert_close(*found)


def test_data_of_a_leaf_assigned_under_inference_mode_is_refused_by_name_or_as_in_eager():
    def assigned(p):
        p.data = torch.ones(3)
        return p * 2

    def ran(fn):
        leaf = torch.zeros(3, requires_grad=True)
        with torch.inference_mode():
            result = fn(leaf)
        return result.tolist(), result.is_inference(), leaf.tolist(), leaf.is_inference(), leaf._version

    compiled = aotviz.aot_function(assigned, lambda graph, _: graph)
    if versions.has("a base may be made outside inference mode"):
        with pytest.raises(aotviz.Refused, match=r"assigns 'p'\.data"):
            ran(compiled)
    else:
        assert ran(compiled) == ran(assigned)


def test_data_of_a_leaf_is_read_after_a_view_of_a_leaf_that_is_a_view_was_written():
    def f(view, leaf):
        view.view(torch.int32).view(torch.float32).add_(view)
        leaf.data  # noqa: B018
        with torch.no_grad():
            leaf.mul_(leaf)
        return leaf

    def arguments():
        return torch.linspace(-1, 1, 1).reshape(()).requires_grad_().view(()), torch.ones(3, requires_grad=True)

    torch.compiler.reset()
    ours, eagers = arguments(), arguments()
    torch.testing.assert_close(torch.compile(f, backend="aotviz_eager")(*ours), f(*eagers))
    torch.testing.assert_close(ours, eagers)


def test_an_argument_that_is_moved_and_then_made_to_require_grad_is_a_leaf_that_lies_so():
    def f(x):
        x.transpose_(0, 1)
        x.requires_grad_()
        return x.detach() * 3

    def called(fn):
        x = torch.arange(12.0).view(3, 4)[:, 2:]
        return fn(x), x.shape, x.is_leaf, x.requires_grad, x._version

    assert str(called(aotviz.aot_function(f, lambda graph, _: graph))) == str(called(f))


def test_a_result_of_which_the_function_took_a_view_after_its_memory_was_written_may_be_written():
    def f(x):
        data = x.data
        view = data.view(-1)
        data.sub_(x, alpha=0.5)
        view[0:]
        return view

    def called(fn):
        x = torch.ones(3, requires_grad=True)
        result = fn(x)
        result.mul_(2)
        return result, torch.autograd.grad(result.sum(), x)

    torch.testing.assert_close(called(aotviz.aot_function(f, lambda graph, _: graph)), called(f))


@pytest.mark.parametrize("writes", [0, 1])
def test_set_under_inference_mode_leaves_an_argument_the_tensor_that_it_is(writes):
    def f(x):
        for _ in range(writes):
            x.mul_(2)
        x.set_(x * 3)
        return x + 1

    def called(fn):
        x = torch.ones(3)
        with torch.inference_mode():
            result = fn(x)
        return result.tolist(), x.tolist(), x.is_inference(), x._version

    assert called(aotviz.aot_function(f, lambda graph, _: graph)) == called(f)


def view_is_saved(x, w, assign):
    v = w[:3]
    y = x * v
    if assign:
        v.data = (v * 2).detach()
    return y


def result_is_saved_by_another(x, w, assign):
    v = w.exp()
    y = x * v
    if assign:
        v.data = (v * 2).detach()
    return y


def operand_is_saved(x, w, assign):
    v = x.exp() * w
    y = v.sin()
    if assign:
        v.data = v.detach() * 3
    return y


def own_result_is_saved(x, w, assign):
    v = (x * w).exp()
    if assign:
        v.data = v.detach() * 3
    return v


def nothing_is_saved(x, w, assign):
    v = x * w
    y = v + x
    if assign:
        v.data = v.detach() * 3
    return y


SAVED = {view_is_saved: 1, result_is_saved_by_another: 1, operand_is_saved: 1, own_result_is_saved: 0}


@pytest.mark.parametrize("f", [*SAVED, nothing_is_saved])
def test_data_of_an_intermediate_is_assigned_by_the_code_between_two_graphs(f, tmp_path):
    """Eager's backward reads the new memory of what an operator saved, and the old memory of an operator's own result.
    The same graph without the assignment, which is compiled and cached first, is another program."""
    told = []
    for assign in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="aotviz_eager", options={"cache": tmp_path})
        found = []
        for fn in (compiled, f):
            x, w = (torch.arange(start, start + 3, requires_grad=True) for start in (1.0, 2.0))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                backend._warned.clear()
                result = fn(x, w, assign)
            told += [str(one.message) for one in caught if one.category is aotviz.RanInEager]
            found.append((result.detach().clone(), *torch.autograd.grad(result.sum(), (x, w))))
        torch.testing.assert_close(*found)
    assert len(told) == SAVED.get(f, 0)
    assert all("assigns an intermediate.data" in one for one in told)


def writes_the_whole(y):
    y.sigmoid_()
    torch._dynamo.graph_break()
    y.data.mul_(3)


def writes_a_part(y):
    y[:2].sigmoid_()
    torch._dynamo.graph_break()
    y.data.mul_(3)


def writes_what_no_gradient_needs(y):
    y.mul_(2)
    torch._dynamo.graph_break()
    y.data.mul_(3)


def writes_nothing_after_the_break(y):
    y.sigmoid_()
    torch._dynamo.graph_break()
    y.clone()


IN_EAGER = {writes_the_whole: True, writes_a_part: True, writes_what_no_gradient_needs: False}


@pytest.mark.parametrize("f", IN_EAGER)
def test_data_of_a_written_input_is_written_after_a_break(f, tmp_path):
    """Eager's backward reads the memory of the input, to which `.data` writes without a word to autograd. The same
    graph, compiled and cached first for a function without `.data`, is another program."""

    def ran(compiled):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        y = x * 1.5
        compiled(y)
        return y.detach().clone(), *torch.autograd.grad(y.sum(), x)

    for fn in (writes_nothing_after_the_break, f):
        torch._dynamo.reset()
        backend._warned.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = ran(torch.compile(fn, backend="aotviz_eager", options={"cache": tmp_path}))
        torch.testing.assert_close(compiled, ran(fn))
    told = [str(one.message) for one in caught if one.category is aotviz.RanInEager]
    assert [text.count("'y' is written in place, a gradient needs its new value") for text in told] == [1] * IN_EAGER[f]
