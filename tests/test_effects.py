"""Calls with side effects: as often as in eager, and in eager's order, in the forward and in the backward."""

from __future__ import annotations

import gc

import pytest
import torch
from torch._higher_order_ops.effects import _EffectType
from torch.testing._internal.torchbind_impls import init_torchbind_implementations

import aotviz
from aotviz.ir import graphs
from tests.doors import alone
from tests.tiers import slow

LOG: list[tuple[str, float]] = []


@pytest.fixture(autouse=True, scope="module")
def operators():
    """An operator that writes a log, as a metrics library would have it."""
    library = torch.library.Library("aotviz_effects", "FRAGMENT")
    library.define("note(Tensor x, str tag) -> Tensor")

    def note(x, tag):
        LOG.append((tag, x.sum().item()))
        return x.clone()

    library.impl("note", note, "CompositeExplicitAutograd")
    torch.library.register_fake("aotviz_effects::note", lambda x, tag: torch.empty_like(x), lib=library)
    torch.library._register_effectful_op("aotviz_effects::note", _EffectType.ORDERED)
    yield
    library._destroy()
    gc.collect()


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


class Noted(torch.autograd.Function):
    """Notes what goes through it, in both directions."""

    @staticmethod
    def forward(ctx, x, tag):
        ctx.tag = tag
        return torch.ops.aotviz_effects.note(x, tag)

    @staticmethod
    def backward(ctx, gradient):
        torch.ops.aten._print(f"backward of {ctx.tag}")
        return torch.ops.aotviz_effects.note(gradient, f"backward of {ctx.tag}"), None


def chatty(x):
    torch.ops.aten._print("begin")
    y = Noted.apply(x.sin(), "first")
    torch._higher_order_ops.print("seen {}", y.shape[0])
    return Noted.apply(y * 2, "second").exp()


def traces_of(fn, capfd, x):
    LOG.clear()
    capfd.readouterr()
    fn(x).sum().backward()
    return list(LOG), capfd.readouterr().out, x.grad


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_effects_come_in_eagers_order_forward_and_backward(backend, capfd):
    compiled = aotviz.compile(chatty, backend=backend, debug=True)
    compiled(torch.ones(2, requires_grad=True))
    notes, text, gradient = traces_of(chatty, capfd, torch.ones(2, requires_grad=True))
    assert [tag for tag, _ in notes] == ["first", "second", "backward of second", "backward of first"]
    for _ in range(2):
        mine = traces_of(compiled, capfd, torch.ones(2, requires_grad=True))
        assert [tag for tag, _ in mine[0]] == [tag for tag, _ in notes]
        torch.testing.assert_close([value for _, value in mine[0]], [value for _, value in notes])
        assert mine[1] == text
        torch.testing.assert_close(mine[2], gradient)


def test_tracing_has_no_effects(capfd):
    aotviz.trace_stages(chatty, torch.ones(2, requires_grad=True), backend="eager")
    assert LOG == []
    assert capfd.readouterr().out == ""


def test_an_effect_whose_result_nobody_reads_stays_in_an_inference_graph():
    def f(x):
        torch.ops.aotviz_effects.note(x, "unused")
        return x + 1

    compiled = aotviz.compile(f, backend="eager")
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert LOG == [("unused", 3.0), ("unused", 3.0)]


def test_debug_mode_does_not_run_an_effect_again_to_compare_what_is_written():
    def f(x):
        torch.ops.aotviz_effects.note(x, "once")
        return x.add_(1)

    aotviz.compile(f, backend="eager", debug=True)(torch.ones(3))
    assert LOG == [("once", 3.0)]


def test_an_effect_is_not_computed_again_in_the_backward():
    def f(x):
        return (torch.ops.aotviz_effects.note(x.detach(), "once").sin() * x).cos()

    x = torch.ones(2, requires_grad=True)
    aotviz.compile(f, backend="eager")(x).sum().backward()
    assert LOG == [("once", 2.0)]


def test_a_partitioner_sees_tokens_as_inputs_and_outputs_and_the_halves_have_none():
    seen = {}

    def watching(module, joint_inputs, **arguments):
        seen["inputs"] = [node.name for node in graphs.placeholders(module.graph)]
        seen["forward outputs"] = arguments["num_fwd_outputs"]
        from torch._functorch.partitioners import default_partition

        return default_partition(module, joint_inputs, **arguments)

    compiled = aotviz.compile(chatty, backend="eager", partition_fn=watching)
    compiled(torch.ones(2, requires_grad=True)).sum().backward()
    assert seen == {"inputs": ["primals_1", "effect_token", "tangents_1", "tangents_token"], "forward outputs": 2}
    lowered = compiled.program.call
    for module in (lowered.forward_module, lowered.backward_module):
        assert not any("token" in node.name for node in graphs.placeholders(module.graph))
        assert len(module.graph.find_nodes(op="call_function", target=torch.ops.prims._sink_tokens.default)) == 1


def test_failing_linear_algebra_raises_as_in_eager():
    compiled = aotviz.compile(lambda x: torch.linalg.inv(x), backend="eager")
    torch.testing.assert_close(compiled(torch.eye(2) * 2), torch.eye(2) / 2)
    with pytest.raises(RuntimeError, match="singular"):
        compiled(torch.zeros(2, 2))


def test_an_effect_inside_a_branch_is_refused_and_happens_in_eager():
    def f(x):
        def branch(a):
            torch.ops.aotviz_effects.note(a, "branch")
            return a.sin()

        return torch.cond(x.sum() > 0, branch, lambda a: a.cos(), (x,))

    torch._dynamo.reset()
    with pytest.warns(aotviz.RanInEager, match=r"side effects .* inside a function that is passed to cond"):
        result = torch.compile(f, backend="aotviz_eager")(torch.ones(2))
    torch.testing.assert_close(result, torch.ones(2).sin())
    assert [tag for tag, _ in LOG] == ["branch"]


# --- script objects -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes():
    try:
        init_torchbind_implementations()
    except OSError as error:
        pytest.skip(f"this build of torch has no script objects for tests: {error}")
    return torch.classes._TorchScriptTesting


def turn_over(queue, x):
    queue.push(x.detach().sin())
    queue.push(x.detach().cos() + 1)
    return queue.pop() * x, queue.size()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "compiler",
    [
        lambda fn: aotviz.compile(fn, backend="eager", debug=True),
        lambda fn: torch.compile(fn, backend="aotviz_eager"),
        slow(lambda fn: aotviz.compile(fn, backend="inductor")),
    ],
    ids=["compile", "torch.compile", "inductor"],
)
def test_a_script_object_changes_as_in_eager(classes, compiler, requires_grad):
    torch._dynamo.reset()
    compiled = compiler(turn_over)
    queues = [classes._TensorQueue(torch.zeros(0)) for _ in range(2)]
    for _ in range(3):
        for fn, queue in zip((turn_over, compiled), queues, strict=True):
            x = torch.ones(2, requires_grad=requires_grad)
            y, size = fn(queue, x)
            if requires_grad:
                y.sum().backward()
            if fn is turn_over:
                expected = (y, size, x.grad)
            else:
                torch.testing.assert_close((y, x.grad), (expected[0], expected[2]))
                assert size == expected[1]
        assert queues[0].size() == queues[1].size()


class HoldsQueue(torch.nn.Module):
    def __init__(self, queue):
        super().__init__()
        self.queue = queue
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        self.queue.push(x * self.weight)
        return x + self.queue.size()


def test_a_modules_script_object_is_an_input_like_its_parameters(classes):
    queues = [classes._TensorQueue(torch.zeros(0)) for _ in range(2)]
    plain, compiled = HoldsQueue(queues[0]), aotviz.compile(HoldsQueue(queues[1]), backend="eager", debug=True)
    for _ in range(3):
        x = torch.rand(2)
        assert torch.equal(plain(x), compiled(x))
        assert torch.equal(queues[0].top(), queues[1].top())
    assert compiled.queue is queues[1]
    assert "queue" in [d.name for d in compiled.program.lowered.call.descriptors]


def test_a_script_object_that_is_returned_is_the_one_that_was_passed(classes):
    def f(queue, x):
        queue.push(x)
        return queue, x + 1

    queue = classes._TensorQueue(torch.zeros(0))
    out, _ = aotviz.compile(f, backend="eager")(queue, torch.ones(2))
    assert out.size() == queue.size() == 1


def test_a_script_object_without_a_stand_in_is_refused_by_name(classes):
    stack = classes._StackString(["a"])
    with pytest.raises(NotImplementedError, match=r"'names'.*_TorchScriptTesting::_StackString.*register_fake_class"):
        alone(lambda names, x: x + 1)(stack, torch.ones(2))


# --- operators that users write -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def custom():
    """Operators by torch.library.custom_op: one writes its arguments, one returns several results."""

    @torch.library.custom_op("aotviz_effects::accumulate", mutates_args={"total"})
    def accumulate(total: torch.Tensor, x: torch.Tensor, scale: float) -> None:
        total.add_(x, alpha=scale)

    @torch.library.custom_op("aotviz_effects::minmax", mutates_args=())
    def minmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.min(), x.max()

    @minmax.register_fake
    def _(x):
        return x.new_empty(()), x.new_empty(())

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], *output)

    def backward(ctx, low, high):
        x, least, most = ctx.saved_tensors
        return (x == least) * low + (x == most) * high

    minmax.register_autograd(backward, setup_context=setup)
    return torch.ops.aotviz_effects


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_operator_that_writes_its_argument_writes_it_once(custom, backend):
    def f(total, x):
        custom.accumulate(total, x.detach(), 2.0)
        view = total[1:]
        custom.accumulate(view, x.detach()[1:], 1.0)
        return (total * x).sum()

    compiled = aotviz.compile(f, backend=backend)
    for _ in range(2):
        totals, xs = [torch.ones(3), torch.ones(3)], [torch.rand(3, requires_grad=True) for _ in range(2)]
        xs[1].data.copy_(xs[0].data)
        for fn, total, x in zip((f, compiled), totals, xs, strict=True):
            fn(total, x).backward()
        torch.testing.assert_close(totals[0], totals[1])
        torch.testing.assert_close(xs[0].grad, xs[1].grad)


def test_an_operator_with_a_backward_of_its_own_is_differentiated_by_it(custom):
    def f(x):
        low, high = custom.minmax(x * 2)
        return high - low * 3

    xs = [torch.tensor([3.0, 1.0, 2.0], requires_grad=True) for _ in range(2)]
    f(xs[0]).backward()
    aotviz.compile(f, backend="eager", debug=True)(xs[1]).backward()
    assert torch.equal(xs[0].grad, xs[1].grad)


def test_the_recording_says_why_an_operator_is_kept():
    compiled = aotviz.compile(chatty, backend="eager", cache=False)
    compiled(torch.ones(2))
    reasons = compiled.recording[0].evidence.query("stage == 'metadata'")
    kept = reasons[reasons.reason == "it has side effects: a token keeps its calls, and their order"]
    assert kept.subject.tolist() == ["aten._print.default", "aotviz_effects.note.default", "print"]
