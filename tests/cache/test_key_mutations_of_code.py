"""Each change of a program, or of a function of the user's that is compiled or that compiles, changes the key.

The mutations are generated: each operator, constant and argument of a program is replaced, and each constant, operator
and method in the source of a custom backward, of a pass, of a custom operator, and of a subclass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from aotviz.cache import key
from aotviz.cache.content import Uncacheable
from tests.cache.captured import Captured, captured, differing, keys, module_of
from tests.cache.mutations import mutated_sources, other


@pytest.fixture(scope="module")
def program() -> Captured:
    def model(x, w, b):
        y = torch.nn.functional.gelu(x @ w + b, approximate="tanh")
        y = y.softmax(dim=-1).sum(0) * 3
        z = torch.cat([y, y.neg()], 0).view(2, 4).clamp(0.5, max=2.0)
        return torch.where(z > 1, z, z.exp()).mean(), x.add_(1)

    return captured(model, torch.ones(2, 3), torch.ones(3, 4, requires_grad=True), torch.ones(4))


# The program


def copied(program: Captured) -> Captured:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.module.graph, {}))
    module = torch.fx.GraphModule(program.module, graph)
    return Captured(module, program.inputs)


def mutated_programs(program: Captured) -> Iterator[tuple[str, Captured]]:
    """Each operator replaced, each constant changed, each argument exchanged or dropped."""
    for position, node in enumerate(program.module.graph.nodes):
        if node.op not in ("call_function", "call_method"):
            continue
        changes: dict[str, Callable[[Any], None]] = {"target": replace_target}
        for i, argument in enumerate(node.args):
            if isinstance(argument, (int, float, str)):
                changes[f"argument {i}"] = lambda n, i=i: n.update_arg(i, other(n.args[i]))
            elif isinstance(argument, torch.fx.Node):
                changes[f"argument {i}"] = lambda n, i=i: n.update_arg(i, another_node(n, n.args[i]))
        for name in node.kwargs:
            changes[f"argument {name}"] = lambda n, name=name: n.update_kwarg(name, other(n.kwargs[name]))
            changes[f"without {name}"] = lambda n, name=name: setattr(
                n, "kwargs", {k: v for k, v in n.kwargs.items() if k != name}
            )
        if len(node.all_input_nodes) > 1 and len(node.args) > 1:
            changes["order"] = lambda n: setattr(n, "args", n.args[::-1])
        for what, change in changes.items():
            made = copied(program)
            change(list(made.module.graph.nodes)[position])
            yield f"{node.name}: {what}", made


def replace_target(node: torch.fx.Node) -> None:
    node.target = "atan2" if node.op == "call_method" else torch.atan2


def another_node(node: torch.fx.Node, used: torch.fx.Node) -> torch.fx.Node:
    return next(one for one in node.graph.nodes if one is not used)


def test_each_part_of_a_program(program):
    before, seen = program.key(), {}
    for name, made in mutated_programs(program):
        after = made.key()
        assert differing(before, after) == {"program"}, name
        assert after.digest not in seen or name.split(":")[0] == seen[after.digest].split(":")[0], name
        seen[after.digest] = name
    assert len(seen) > 40


def test_results_in_another_order(program):
    made = copied(program)
    output = made.module.graph.output_node()
    output.args = (output.args[0][::-1],)
    assert differing(program.key(), made.key()) == {"program"}


CUSTOM = """
import torch
from torch.autograd.function import once_differentiable

SCALE = 3.0

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.factor = 5.0
        y = x.sin() * w
        return y, x.exp()

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        a = g * x.cos() * w
        b = h * x.exp() * ctx.factor
        c = (g * x.sin()).sum(0) + SCALE
        return a + b, c - 1.0

def call(x, w):
    y, z = Function.apply(x, w)
    return y.sum() + z.sum()
"""
ADDED = [
    ("once_differentiable", "    def backward(ctx", "    @once_differentiable\n    def backward(ctx"),
    ("unmaterialized", "        ctx.factor", "        ctx.set_materialize_grads(False)\n        ctx.factor"),
    ("not differentiable", "        return y, x", "        ctx.mark_non_differentiable(y)\n        return y, x"),
    ("saved as an attribute", "        ctx.factor", "        ctx.w = w\n        ctx.factor"),
    ("a used attribute", "        ctx.save_for_backward(x, w)", "        ctx.save_for_backward(x, x + w)"),
]


def of_custom(source: str, folder: Any, name: str) -> key.Key:
    made = module_of(source, folder, name)
    (found,) = keys(made.call, torch.ones(3, 4, requires_grad=True), torch.ones(4, requires_grad=True))
    return found


@pytest.mark.parametrize(("what", "source"), mutated_sources(CUSTOM), ids=lambda value: value[:40].split("\n")[0])
def test_a_piece_of_a_custom_function(what, source, tmp_path):
    before = of_custom(CUSTOM, tmp_path, "custom_before")
    assert differing(before, of_custom(source, tmp_path, "custom_after")) == {"program"}


@pytest.mark.parametrize(("what", "before", "after"), ADDED[:3], ids=[what for what, *_ in ADDED[:3]])
def test_what_is_said_of_a_custom_function(what, before, after, tmp_path):
    one = of_custom(CUSTOM, tmp_path, "custom_before")
    assert before in CUSTOM
    source = CUSTOM.replace(before, after)
    assert differing(one, of_custom(source, tmp_path, "custom_after")) == {"program"}


def test_constants_of_a_graph():
    def with_constant(value: torch.Tensor) -> key.Key:
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output((graph.call_function(operator.add, (x, graph.get_attr("held"))),))
        module = torch.fx.GraphModule({"held": 1}, graph)
        module.held = value
        return Captured(module, [torch.ones(4)]).key()

    before = with_constant(torch.arange(4.0))
    assert not differing(before, with_constant(torch.arange(4.0)))
    others = [torch.arange(4.0) + 1, torch.arange(4), torch.arange(4.0).view(4, 1), torch.arange(4.0).requires_grad_()]
    others += [torch.arange(0, 4, 0.5)[::2], torch.zeros(()), torch.arange(4.0, dtype=torch.float64), torch.ones(0)]
    for value in others:
        assert differing(before, with_constant(value)) == {"program"}
    with pytest.raises(Uncacheable):
        with_constant(torch.ones(4, device="meta"))


# Functions of the user's in a graph, an option or a setting

PASS = """
import torch
import pass_helper
from functools import partial

LIMIT = 4.0
TABLE = {"a": 1.0, "b": [2.0, 3.0]}

class Held:
    weight = 7.0
    def factor(self):
        return self.weight * 2.0

def inner(value, scale=2.0, *, shift=3.0):
    def innermost(x):
        return x + 5.0
    return innermost(value) * scale + shift + pass_helper.more(value) * pass_helper.FACTOR

def make(closed=6.0):
    def run(joint, inputs, **arguments):
        held = Held()
        try:
            total = inner(LIMIT) + TABLE["a"] + held.factor() - closed
        except ValueError:
            total = 8.0
        return [total for _ in range(2) if total > 9.0], lambda: total + 10.0
    return run

chosen = make()
bound = partial(make(), extra=11.0)
"""
HELPER = """
FACTOR = 12.0
UNUSED = 13.0

def more(value):
    return value + 14.0

def unused(value):
    return value - 15.0
"""


def of_pass(folder: Any, source: str, helper: str, which: str, name: str) -> key.Key:
    module_of(helper, folder, "pass_helper")
    made = module_of(source, folder, name)
    found = captured(torch.sin, torch.ones(2))
    return found.key(partition_fn=getattr(made, which))


PASSES = [(what, source, HELPER) for what, source in mutated_sources(PASS)]
HELPERS = [(what, PASS, source) for what, source in mutated_sources(HELPER)]


@pytest.mark.parametrize(("what", "source", "helper"), PASSES + HELPERS, ids=lambda value: value[:40].split("\n")[0])
def test_a_piece_of_a_pass(what, source, helper, tmp_path):
    one, after = (
        of_pass(tmp_path, *texts, "bound", name)
        for texts, name in (((PASS, HELPER), "pass_before"), ((source, helper), "pass_after"))
    )
    unused = "13.0" not in helper or "- 15.0" not in helper
    assert differing(one, after) == (set() if unused else {"options"})


def test_a_pass_in_a_setting(program, tmp_path):
    helper = module_of(HELPER, tmp_path, "pass_helper")
    one, two = (
        module_of(source, tmp_path, name).chosen
        for source, name in ((PASS, "one_pass"), (PASS.replace("5.0", "5.5"), "two_pass"))
    )
    assert helper
    found = []
    for chosen in (None, one, two):
        with torch._functorch.config.patch(joint_custom_pass=chosen):
            found.append(program.key())
    assert differing(found[0], found[1]) == differing(found[1], found[2]) == {"AOTAutograd's settings"}


ALLOWED = """
import torch

@torch._dynamo.allow_in_graph
def opaque(x):
    return x.sin() * 2.0

def call(x):
    return opaque(x) + 1
"""


@pytest.mark.parametrize(("what", "source"), mutated_sources(ALLOWED), ids=lambda value: value[:40].split("\n")[0])
def test_a_piece_of_a_function_that_dynamo_leaves_in_the_graph(what, source, tmp_path):
    one, after = (
        keys(module_of(text, tmp_path, name).call, torch.ones(3))[0]
        for text, name in ((ALLOWED, "allowed_before"), (source, "allowed_after"))
    )
    assert differing(one, after) == {"program"}


OPERATOR = """
import torch

@torch.library.custom_op("cached_mutations::NAME", mutates_args=())
def kernel(x: torch.Tensor, y: float) -> torch.Tensor:
    return x * y * 2.0

@kernel.register_fake
def _(x, y):
    return torch.empty_like(x * 3.0)

def setup(ctx, inputs, output):
    x, y = inputs
    ctx.y = y * 4.0

def backward(ctx, grad):
    return grad * ctx.y * 5.0, None

kernel.register_autograd(backward, setup_context=setup)

def call(x):
    return kernel(x, 2.0)
"""


@pytest.mark.parametrize(("what", "source"), mutated_sources(OPERATOR), ids=lambda value: value[:40].split("\n")[0])
def test_a_piece_of_a_custom_operator(what, source, tmp_path):
    found = []
    for text, name in ((OPERATOR, "op_before"), (OPERATOR, "op_again"), (source, "op_after")):
        made = module_of(text.replace("NAME", "scaled"), tmp_path, name)
        found += keys(made.call, torch.ones(3, requires_grad=True))
        made.kernel._lib._destroy()
        del made
    assert not differing(found[0], found[1])
    assert differing(found[1], found[2]) == {"program"}


SUBCLASS = """
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

class Scaled(torch.Tensor):
    factor = 2.0

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    def __tensor_flatten__(self):
        return ["inner"], self.scale

    @staticmethod
    def __tensor_unflatten__(inner, scale, size, stride):
        return Scaled(inner["inner"], scale)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [one.inner * cls.factor + 3.0 if isinstance(one, Scaled) else one for one in args]
        return func(*inner, **(kwargs or {}))
"""


def test_each_part_of_a_subclass(tmp_path):
    one_input = captured(lambda x: x * 2, torch.ones(4, 6))

    def of(source: str = SUBCLASS, inner: torch.Tensor | None = None, scale: Any = 1.0) -> key.Key:
        made = module_of(source, tmp_path, "subclass_of_a_user")
        return one_input.key([made.Scaled(torch.ones(4, 6) if inner is None else inner, scale)])

    before = of()
    assert not differing(before, of())
    changed = [of(source) for _, source in mutated_sources(SUBCLASS)]
    changed += [of(scale=2.0), of(scale=(1.0,)), of(inner=torch.ones(4, 6).double()), of(inner=torch.ones(6, 4).t())]
    assert len(changed) == 8
    for after in changed:
        assert "inputs" in differing(before, after) <= {"inputs", "memory layout"}
    assert len({one.digest for one in changed}) == 8
