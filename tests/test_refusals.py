"""What is refused is refused by name, and the page that explains the refusals knows them all."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
import torch
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.ir.refusals import RULES, refuse, rule_named_in
from aotviz.torch_private import versions
from aotviz.tracing import rules
from tests.doors import alone
from tests.oracle.strategy import from_seed

PAGE = Path(__file__).parents[1] / "docs" / "refusals.md"


def leaf(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def grown(*shape):
    return leaf(*shape) * 1.5


def view_of_a_leaf_made_of_a_view():
    whole = torch.ones(4)
    part = whole[1:].requires_grad_()
    return (lambda a, b, c: a.mul_(c) + b.sum()), whole, part[1:], torch.ones(4, requires_grad=True)


def set_of_one_of_two():
    whole = torch.ones(4)

    def f(a, b, c):
        b.add_(1)
        with torch.no_grad():
            a.set_(c)
        return b

    return f, whole[:3], whole[1:], torch.ones(3)


def moved_view_is_written():
    def f(x):
        view = x.transpose(1, 1)
        view.transpose_(0, 1)
        view.t().copy_(view.clone())
        return view * 1

    return f, grown(3, 3)


def written_through_as_strided_of_what_moved():
    def f(x):
        y = x * 2
        y.t_()
        y[0].as_strided((2,), (1,), 0).add_(1)
        return y

    return f, torch.ones(2, 3)


def set_before_a_write(x, y, w):
    with torch.no_grad():
        x.set_(y)
    x.mul_(w)
    return x * 2


def resized_before_set(x, y):
    x.untyped_storage().resize_(64)
    x.set_(y)
    return y * 1


def assigned_data():
    def f(x, y):
        x.data = y
        return x + 1

    return f, torch.ones(2), torch.ones(2)


def old_storage_is_written():
    def f(x):
        view = x[1:]
        x.data = x * 2
        view.add_(1)
        return x + 1

    return f, torch.ones(2)


def turned_on_and_off(weights):
    weights.requires_grad_()
    y = weights * 2
    weights.requires_grad_(False)
    return y


def inside_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y


def uses_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    return y * x


def leaves_the_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * 2


def resized_after_a_write(x):
    x.mul_(0.5)
    x.resize_(3)


def backward_inside(x):
    (x * x).sum().backward()
    return x + 1


def padded_encoder():
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval().requires_grad_(False)
    return (lambda x, padding: encoder(x, src_key_padding_mask=padding)), torch.ones(1, 3, 4), torch.arange(3)[None] > 1


@functools.lru_cache
def table(n):
    return torch.arange(n).float()


def appends(x, found):
    found.append(x * 2)
    return x + 1


def returns_what_it_freed(x):
    y = x * 2
    y.untyped_storage().resize_(0)
    return y


def returns_a_leaf_and_more(x):
    y = (x * 2).requires_grad_()
    return y, y * 3


def asks_numpy(x):
    return torch.from_numpy(x.numpy() * 2)


def reads_a_gradient(weights):
    return weights if weights.grad is None else weights - weights.grad


def through_sparse(at, values):
    return torch.sparse_coo_tensor(at, values, (3,)).to_dense()


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        ctx.count.add_(1)
        return gradient, None


def counts_with_two_results(x, count):
    return Counting.apply(x, count), x.exp()


class Multiplies(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(torch.mul if func is torch.add else func, types, args, kwargs)


def writes_what_has_parts(x):
    y = x.sin()
    part, _ = y.unsafe_chunk(2)
    y.mul_(2)
    return part


CASES = {
    "written by a backward": lambda: (counts_with_two_results, leaf(2), torch.zeros(())),
    "part that is not a view": lambda: (writes_what_has_parts, torch.ones(2)),
    "gradient of an argument": lambda: (reads_a_gradient, leaf(2)),
    "argument is changed": lambda: (appends, torch.ones(2), []),
    "tensor is kept": lambda: (lambda x: x * table(2), torch.ones(2)),
    "storage is resized": lambda: (returns_what_it_freed, torch.ones(2)),
    "NumPy inside": lambda: (asks_numpy, torch.ones(2)),
    "nested tensor inside": padded_encoder,
    "backward inside": lambda: (backward_inside, leaf(2)),
    "resized after a write": lambda: (resized_after_a_write, torch.ones(2)),
    "view whose base does not require grad": view_of_a_leaf_made_of_a_view,
    "alias is given another storage": set_of_one_of_two,
    "metadata op on a view": moved_view_is_written,
    "as_strided in a chain of views": written_through_as_strided_of_what_moved,
    "requires_grad changes": lambda: (turned_on_and_off, torch.ones(2)),
    "a new leaf is returned": lambda: (returns_a_leaf_and_more, torch.ones(2)),
    "a leaf made inside": lambda: ((lambda x: x * torch.ones(2, requires_grad=True)), torch.ones(2)),
    "inference mode inside": lambda: (inside_inference_mode, TwoTensor(torch.ones(2), torch.ones(2))),
    "inference tensor is used": lambda: (uses_an_inference_tensor, leaf(2)),
    "data is assigned": assigned_data,
    "old storage is written": old_storage_is_written,
    "value of a tensor": lambda: ((lambda x: x * float(x.sum())), torch.ones(2)),
    "layout is not strided": lambda: ((lambda x: x * 2), torch.ones(2, 2).to_sparse()),
    "trace inside": lambda: (lambda x, w: torch.func.linearize(torch.sin, x)[1](w), torch.ones(2), torch.ones(2)),
    "sparse tensor inside": lambda: (through_sparse, torch.tensor([[0, 1]]), leaf(2)),
    "random state inside": lambda: ((lambda x: x * torch.manual_seed(1).initial_seed()), torch.ones(2)),
    "mode is changed": lambda: (leaves_the_default_dtype, torch.ones(2)),
    "tensor class is not traced": lambda: ((lambda x: torch.add(x, 3)), torch.ones(2).as_subclass(Multiplies)),
    "set_ before a write: in grad mode": lambda: (set_before_a_write, torch.ones(3), torch.ones(3), leaf(3)),
    "storage is resized: before set_": lambda: (resized_before_set, torch.ones(3), torch.ones(3)),
}


@pytest.mark.parametrize("reason", CASES)
def test_it_is_refused_by_name_and_nothing_has_run(reason):
    fn, *args = CASES[reason]()
    dense = [a for a in args if isinstance(a, torch.Tensor) and a.layout is torch.strided]
    before = [(a.detach().clone(), a._version) for a in dense]
    with pytest.raises(aotviz.Refused) as caught:
        alone(fn)(*args)
    grown = reason == "resized after a write" and versions.has("an input that grows is taken for a view")
    assert caught.value.reason == ("view is resized" if grown else reason.partition(": ")[0])
    for argument, (value, version) in zip(dense, before, strict=True):
        assert torch.equal(argument.detach(), value)
        assert argument._version == version


def test_an_input_that_gains_a_history_from_inside_is_refused_whether_or_not_it_has_an_alias():
    whole = torch.ones(4)
    for arguments in ((whole, torch.ones(4)), (whole, whole.view(torch.int32).view(torch.float32))):
        with pytest.raises(aotviz.Refused, match="'p' requires grad after the call"):
            alone(written_with_a_leaf)(*arguments)
    assert whole.tolist() == [1] * 4


def written_with_a_leaf(p, q):
    p.mul_(torch.full((4,), 2.0, requires_grad=True))


def clips(x, layer):
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
    return layer(x)


def zeroes(x, layer):
    layer.zero_grad()
    return layer(x)


def assigns(x, layer):
    layer.weight.grad = x * 2
    return layer(x)


class AtItsGradient(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.layer, self.fn = torch.nn.Linear(2, 2), fn

    def forward(self, x):
        return self.fn(x, self.layer)


@pytest.mark.parametrize("fn", [clips, zeroes, assigns])
def test_the_gradient_of_a_parameter_is_neither_read_nor_assigned(fn):
    module = AtItsGradient(fn)
    module.layer(torch.ones(1, 2)).sum().backward()
    gradient = module.layer.weight.grad.clone()
    with pytest.raises(aotviz.Refused, match=r"reads or assigns the attribute \.grad of 'layer.weight'"):
        alone(module)(torch.ones(2, 2))
    assert torch.equal(module.layer.weight.grad, gradient)


def test_the_gradient_of_an_overlapping_input_and_of_a_subclass_is_not_taken_for_none():
    whole = torch.ones(4)
    compiled = alone(lambda a, b: a.add_(b.grad is None))
    with pytest.raises(aotviz.Refused, match=r"the attribute \.grad of 'b'"):
        compiled(whole[:3], whole[1:])
    two = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
    with pytest.raises(aotviz.Refused, match=r"the attribute \.grad of 'weights'"):
        alone(reads_a_gradient)(two)
    assert whole.tolist() == [1] * 4
    assert "grad" not in vars(TwoTensor)


def test_a_tensor_whose_class_hides_its_memory_is_refused_by_name():
    hidden = masked_tensor(torch.ones(2), torch.tensor([True, False]))
    with pytest.raises(aotviz.Refused, match="'weights' is a MaskedTensor"):
        alone(lambda weights: weights * 2)(hidden)


def test_what_dynamo_asked_of_a_class_is_in_its_graph():
    compiled = torch.compile(lambda x: torch.add(x, 3), backend="aotviz_eager")
    assert compiled((torch.ones(2) + 1).as_subclass(Multiplies)).tolist() == [6, 6]


def test_an_input_is_named_as_the_user_knows_it():
    with pytest.raises(aotviz.Refused, match="'weights'"):
        alone(turned_on_and_off)(torch.ones(2))


def test_the_page_explains_each_refusal_and_no_other():
    named = re.findall(r'^\| <a id="([^"]+)"></a>`([^`]+)` \|', PAGE.read_text(), re.M)
    assert sorted(named) == sorted((rule.place.partition("#")[2], rule.name) for rule in RULES.values())


def test_a_message_ends_with_its_rule_and_the_place_that_explains_it():
    with pytest.raises(aotviz.Refused) as caught:
        alone(turned_on_and_off)(torch.ones(2))
    rule = RULES[caught.value.reason]
    assert str(caught.value).endswith(f'(Rule "requires_grad changes": {rule.place})')
    page, _, anchor = rule.place.partition("#")
    assert f'<a id="{anchor}"></a>' in (PAGE.parents[1] / page).read_text()


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_a_message_is_found_again(name):
    assert rule_named_in(f"ran in eager: {aotviz.Refused(name, 'x', 'an operator', 'y')}") == name


def test_each_refusal_that_the_code_raises_is_on_the_list_and_each_on_the_list_is_raised():
    raised = {
        node.args[0].value
        for path in Path(aotviz.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Refused", "CannotTrace")
        if isinstance(node.args[0], ast.Constant)
    }
    assert raised <= set(RULES)
    source = "".join(path.read_text() for path in Path(aotviz.__file__).parent.rglob("*.py"))
    unused = [reason for reason in RULES if f'"{reason}"' not in source]
    assert not unused, "on the list, and nowhere else in the code"


def test_no_program_is_refused_outside_of_the_list():
    """torch_private stands below the list; it raises CannotTrace, which `ir/refusals.py` puts into words."""
    package = Path(aotviz.__file__).parent
    direct = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "NotImplementedError"
    ]
    assert not direct, "raise Refused(name, ...) instead, with a name of ir/refusals.py"


STATEMENT = "at a statement that no trace can carry out, so the error has the user's line"
ARGUMENT = "about what is passed, before anything has run"
PYTHON = "about Python objects, of which the log has no events"
SORTED = "while results are sorted and their statements written: the answer is half of that work"
GRAPH = "about a graph, not about the run"
CALL = "by a call or its backward, which finds what no run of the function shows"
ERROR = "made of an error that torch raised"
# Where a refusal is raised by a statement of its own: how often, and why it is no entry of tracing/rules.py.
ELSEWHERE = {
    "frontends/export.py": (1, ARGUMENT),
    "frontends/functions.py": (1, ARGUMENT),
    "frontends/requests.py": (2, ARGUMENT),
    "frontends/strays.py": (4, ERROR),
    "ir/effects.py": (1, GRAPH),
    "ir/refusals.py": (3, ERROR),  # and what raises the entries
    "ir/wrapper_subclasses.py": (1, ERROR),
    "python_state/leaks.py": (1, PYTHON),
    "python_state/put_back.py": (2, PYTHON),
    "python_state/randomness.py": (1, PYTHON),
    "python_state/user_objects.py": (1, PYTHON),
    "recorder/what_if.py": (1, ARGUMENT),
    "runtime/aliases.py": (1, SORTED),
    "runtime/call_differs.py": (8, CALL),
    "runtime/captured_backward.py": (2, CALL),
    "runtime/cuts.py": (3, CALL),
    "runtime/double_backward.py": (6, CALL),
    "stages/flatten.py": (4, ARGUMENT),
    "stages/lower.py": (1, GRAPH),
    "stages/random_state.py": (1, GRAPH),
    "stages/saved_hooks.py": (2, GRAPH),
    "stages/subclasses.py": (3, SORTED),
    "stages/synthetic_bases.py": (1, STATEMENT),
    "stages/trace.py": (1, GRAPH),
    "torch_private/script_objects.py": (1, ARGUMENT),
    "tracing/facts_of_outputs.py": (10, SORTED),
    "tracing/forward.py": (1, ERROR),
    "tracing/late_writes.py": (1, GRAPH),
    "tracing/ledger.py": (5, STATEMENT),
    "tracing/open_trace.py": (3, STATEMENT),
    "tracing/overlap.py": (1, STATEMENT),
    "tracing/registered_hooks.py": (2, STATEMENT),
    "tracing/replay.py": (2, SORTED),
    "tracing/run_listener.py": (8, STATEMENT),
    "tracing/user_calls.py": (1, PYTHON),
}


def test_a_refusal_is_an_entry_of_the_list_or_the_place_says_why_not():
    package = Path(aotviz.__file__).parent
    found = {}
    for path in package.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        raised = sum(getattr(call.func, "id", "") in ("Refused", "CannotTrace") for call in calls)
        if raised and path.name != "redis_connection.py":  # of another class with this name
            found[path.relative_to(package).as_posix()] = raised
    known = {path: count for path, (count, _) in ELSEWHERE.items()}
    assert found == known, "a condition on the log is an entry of aotviz/tracing/rules.py"


def entries():
    return {name: value for name, value in vars(rules).items() if name.startswith("OF_")}


def test_each_list_of_conditions_names_rules_and_is_asked_once():
    listed = {reason for conditions in entries().values() for reason, _ in conditions}
    assert listed <= set(RULES)
    source = "".join(path.read_text() for path in Path(aotviz.__file__).parent.rglob("*.py"))
    asked = {name: len(re.findall(rf"refuse\(rules\.{name},", source)) for name in entries()}
    assert asked == {name: 2 if name == "OF_ROOT" else 1 for name in entries()}


def test_the_first_condition_that_holds_names_the_refusal():
    conditions = (
        ("lazy module", lambda asked: ()),
        ("stale view", lambda asked: (name for name in asked)),
        ("metadata op on a view", lambda asked: [("x", "t_", "t()")]),
    )
    with pytest.raises(aotviz.Refused, match="in the order in which it is traced: 'x'"):
        refuse(conditions, ["'x'", "'y'"])
    with pytest.raises(aotviz.Refused, match=r"a metadata op \(t_\) changes .* Use t\(\)"):
        refuse(conditions, [])
    refuse(conditions[:2], [])


@pytest.mark.slow
def test_what_random_programs_are_refused_for_is_on_the_list():
    refused = set()
    for index in range(40):
        drawn = from_seed(3, index)
        setup = drawn.program.builds[0]()
        try:
            with setup.context():
                alone(setup.fn, record=False)(*setup.args)
        except aotviz.Refused as error:
            refused.add(error.reason)
    assert refused <= set(RULES)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x._version == 0,
        lambda x: x._base is None,
        lambda x: x[1:]._version == 0,
        lambda x: x._is_view(),
        lambda x: x.retains_grad,
        lambda x: x.output_nr == 0,
    ],
)
def test_what_autograd_keeps_of_an_argument_and_no_guard_compares_is_refused(ask):
    with pytest.raises(aotviz.Refused, match="of 'x'") as caught:
        alone(lambda x: x + 1 if ask(x) else x - 1)(torch.ones(3, requires_grad=True) * 2)
    assert caught.value.reason == "state of a tensor"


def test_a_function_may_ask_for_the_version_of_what_it_makes():
    def f(x):
        y = x * 2
        y.add_(1)
        return y * y._version

    assert torch.equal(alone(f)(torch.ones(3)), f(torch.ones(3)))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.expand(3, 4).add_(1),
        lambda x: x.expand(3, 4).copy_(torch.ones(3, 4)),
        lambda x: x[1:].add_(x[:-1]),
        lambda x: torch.add(x[:3], 1, out=x[1:]),
    ],
)
def test_a_write_that_eager_refuses_for_its_overlap_raises_what_eager_raises(write):
    with pytest.raises(RuntimeError) as eager:
        write(torch.ones(4))
    x = torch.ones(4)
    with pytest.raises(RuntimeError) as ours:
        alone(write)(x)
    assert str(ours.value) == str(eager.value)
    assert (x.tolist(), x._version) == ([1] * 4, 0)


def test_a_write_whose_result_depends_on_the_order_is_refused_and_one_of_the_same_everywhere_is_not():
    def f(x, write):
        write(x.as_strided((3, 2), (1, 1)))
        return x * 2

    compiled = alone(f)
    with pytest.raises(aotviz.Refused, match="by add_") as caught:
        compiled(torch.ones(4), lambda y: y.add_(1))
    assert caught.value.reason == "overlapping write"
    assert torch.equal(compiled(torch.ones(4), lambda y: y.fill_(3)), torch.full((4,), 6.0))


def test_a_write_that_reads_where_it_writes_is_compiled():
    def f(x):
        x.add_(x).view(2, 2).mul_(x.view(2, 2))
        x[:2].add_(x[2:])
        x.as_strided((2, 2), (1, 2)).mul_(2)
        return x.t_() if x.dim() == 2 else x

    found = [fn(torch.arange(4.0)) for fn in (f, alone(f))]
    assert torch.equal(found[1], found[0])


def through_a_conjugate(z):
    z.conj().mul_(2 + 1j)
    z.imag.add_(1)
    return z


@pytest.mark.parametrize(
    ("fn", "x", "reason"),
    [
        (lambda x: x + x.data_ptr() % 2, torch.ones(3), "address of a tensor"),
        (lambda x: x + x.untyped_storage().data_ptr() % 2, torch.ones(3), "address of a tensor"),
        (through_a_conjugate, torch.ones(2, dtype=torch.complex64), "write through a conjugate"),
    ],
)
def test_an_error_of_the_trace_alone_has_a_name(fn, x, reason):
    with pytest.raises(aotviz.Refused) as caught:
        alone(fn)(x)
    assert caught.value.reason == reason


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_compiler_that_returns_too_few_results_is_told(requires_grad):
    def lossy(module, inputs):
        return lambda *args: module(*args)[:-1]

    with pytest.raises(TypeError, match=r"returned . results; the graph has . outputs"):
        aotviz.compile(lambda x: (x.sin(), x.cos()), backend=lossy)(torch.ones(3, requires_grad=requires_grad))


def test_a_module_that_is_passed_is_named():
    with pytest.raises(aotviz.Refused, match=r"the tensor 'm.weight' .* compile the Linear that is passed as 'm'"):
        alone(lambda m, x: m(x))(torch.nn.Linear(2, 2), torch.ones(2))


@pytest.mark.parametrize("written", ["x", "y", "y first"])
def test_an_input_with_the_storage_of_another_that_is_written_is_refused(written):
    def f(x, y):
        if written == "y first":
            y.mul_(3)
        x.set_(y)
        if written != "y first":
            (x if written == "x" else y).mul_(3)
        return x.sum()

    x, y = torch.ones(3), torch.ones(4)
    with pytest.raises(aotviz.Refused) as caught:
        alone(f)(x, y)
    assert caught.value.reason == "alias is given another storage"
    assert (x._version, y._version, x.shape) == (0, 0, (3,))


def test_an_input_may_get_the_storage_of_another_that_is_not_written():
    x, y = torch.ones(3), torch.ones(4)
    alone(lambda x, y: x.set_(y[1:]) + 1)(x, y)
    y.mul_(2)
    assert x.tolist() == [2, 2, 2]
