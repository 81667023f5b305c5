"""Hooks, and gradients asked for, on a result that other results of the same call were computed from."""

from __future__ import annotations

import gc
import random
from functools import partial

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from aotviz.ir.refusals import Refused
from tests.tiers import slow

torch.set_num_threads(1)

DOORS = {
    "aotviz.compile": partial(aotviz.compile, backend="eager", debug=True),
    "aot_function": lambda fn: aotviz.aot_function(fn, lambda module, inputs: module, debug=True),
    "aotviz_eager": partial(torch.compile, backend="aotviz_eager"),
    "aotviz_eager, dynamic": partial(torch.compile, backend="aotviz_eager", dynamic=True),
    "aotviz": partial(torch.compile, backend="aotviz"),
}


def chain(x, w):
    a = x * w
    b = a.sin()
    return a, b, (b * a).exp()


def branches(x, w):
    a = x * 2
    return (a * w).tanh(), a, w.exp() * a.cos()


def logits_and_loss(x, w):
    logits = x @ w.t()
    return torch.nn.functional.cross_entropy(logits, torch.arange(3) % 2), logits


def views(x, w):
    """A linear layer of three dimensions gives a view of what it computes."""
    logits = torch.nn.functional.linear(x.view(1, -1, 3), w, w[0])
    mixed = torch.nn.functional.scaled_dot_product_attention(*logits.view(1, 1, -1, 3).expand(3, -1, -1, -1, -1))
    return mixed.square().mean(), logits, logits.exp() * 2


def hooked(results, heard):
    for i, result in enumerate(results):
        result.register_hook(lambda gradient, i=i: heard.append((i, gradient.clone())))


def changed(results, heard):
    for i, result in enumerate(results):
        result.register_hook(lambda gradient, i=i: heard.append((i, gradient.clone())) or gradient * (i - 1.5))
        result.register_hook(lambda gradient, i=i: heard.append((10 + i, gradient.clone())) or gradient + 1)


def retained(results, heard):
    for i, result in enumerate(results):
        result.retain_grad()
        result.register_hook(lambda gradient, i=i: gradient * (i + 2))


def one_only(results, heard):
    hooked(results[1:2], heard)


def removed(results, heard):
    results[1].register_hook(lambda gradient: heard.append((1, gradient))).remove()
    one_only(results, heard)


def one_after_the_other(results):
    for result in results[::-1]:
        result.sum().backward(retain_graph=True)


USES = {
    "all at once": lambda results: sum((i + 1) * result.sum() for i, result in enumerate(results)).backward(),
    "the first": lambda results: results[0].sum().backward(),
    "the last": lambda results: results[-1].sum().backward(),
    "one after the other": one_after_the_other,
}


def seen(fn, listen, use, size=3):
    heard = []
    x = torch.linspace(0.1, 1, size * 3).view(size, 3).requires_grad_()
    w = torch.linspace(-1, 0.7, size * 3).view(size, 3).requires_grad_()
    results = fn(x * 1.1, w)
    listen(results, heard)
    use(results)
    kept = [result.grad if result.retains_grad else None for result in results]
    return sorted(heard, key=lambda pair: pair[0]), x.grad, w.grad, kept


@pytest.mark.every(3)
@pytest.mark.parametrize("listen", [changed, retained, removed])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("fn", [chain, branches, logits_and_loss, views])
def test_a_hook_hears_the_whole_gradient(fn, use, listen):
    expected = seen(fn, listen, USES[use])
    torch.testing.assert_close(seen(DOORS["aotviz.compile"](fn), listen, USES[use]), expected)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("listen", "door"),
    [*((changed, door) for door in DOORS), *((retained, door) for door in [*DOORS][:-1]), slow(retained, "aotviz")],
)
def test_by_every_door(door, listen):
    torch._dynamo.reset()
    compiled = DOORS[door](chain)
    for size in (3, 4) if "dynamic" in door else (3,):
        for use in ("all at once", "the last", "one after the other"):
            expected = seen(chain, listen, USES[use], size)
            torch.testing.assert_close(seen(compiled, listen, USES[use], size), expected)


@pytest.mark.parametrize("listen", [changed, retained, removed])
def test_where_the_graph_itself_writes_an_input_as_batch_norm_does(listen):
    def counted(x, w, count):
        count.add_(1)
        return chain(x, w)

    count = torch.zeros(())
    compiled = aotviz.compile(counted, backend="eager", keep_inference_input_mutations=True)
    expected = seen(partial(counted, count=count), listen, USES["all at once"])
    torch.testing.assert_close(seen(partial(compiled, count=count), listen, USES["all at once"]), expected)
    assert count == 2
    assert "copy_" in str(compiled.program.lowered.call.forward_module.graph)


@pytest.mark.slow
def test_random_programs_with_random_hooks():
    operations = [torch.mul, torch.add, lambda a, b: (a - b).sin(), lambda a, b: a.tanh() * b, lambda a, b: a * a]
    count = 0
    for seed in range(12):
        rng = random.Random(seed)
        steps = [(rng.choice(operations), rng.randrange(2 + i), rng.randrange(2 + i)) for i in range(5)]
        kept = rng.sample(range(2, 7), 3)

        def fn(x, w, steps=steps, kept=kept):
            values = [x, w]
            for operation, first, second in steps:
                values.append(operation(values[first], values[second]))
            return *(values[i] for i in kept), sum(values).sin()  # all are below the last

        listen, use = rng.choice([hooked, changed, retained, one_only]), USES[rng.choice(["all at once", "the last"])]

        expected = seen(fn, listen, use)
        compiled = DOORS["aotviz.compile"](fn)
        torch.testing.assert_close(seen(compiled, listen, use), expected)
        count += len(compiled.recording) > 1
    assert count >= 8, "in most programs no gradient passes another result"


def test_the_cut_is_compiled_when_it_is_needed_and_recorded_with_the_reason():
    compiled = DOORS["aotviz.compile"](chain)
    for use in USES.values():
        seen(compiled, lambda results, heard: None, use)
    assert len(compiled.recording) == 1
    seen(compiled, one_only, USES["all at once"])
    seen(compiled, one_only, USES["all at once"])
    recording = compiled.recording
    assert len(recording) == 3, "the part above the result, and the rest"
    said = "\n".join(text for one in recording for text in one.evidence["reason"])
    assert "output[1] has a hook, and other results are computed from it: this is the backward of those results" in said
    assert (
        "output[1] has a hook, and other results are computed from it: this is the rest of the backward, after the hook"
        in said
    )


def test_the_result_may_be_gone():
    def use(call):
        heard = []
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
        first, _, last = call(x, w)
        first.register_hook(lambda gradient: heard.append(gradient.tolist()) or gradient * 2)
        del first, _
        gc.collect()
        last.sum().backward()
        return heard, x.grad.tolist(), w.grad.tolist()

    assert use(DOORS["aotviz.compile"](chain)) == use(chain)


def test_a_gradient_that_is_asked_for_is_whole_or_refused():
    def both(results):
        return results[0].sum() + results[2].sum()

    for ask in (
        lambda x, w, results: torch.autograd.grad(both(results), results[:1]),
        lambda x, w, results: torch.autograd.grad(both(results), [torch.autograd.graph.get_gradient_edge(results[0])]),
        lambda x, w, results: [both(results).backward(inputs=[results[0]]), results[0].grad][1:],
        lambda x, w, results: torch.autograd.grad(results[0].sum(), [results[0], x]),
    ):
        found = []
        for call in (chain, DOORS["aotviz.compile"](chain)):
            x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
            found.append(ask(x, w, call(x, w)))
        torch.testing.assert_close(found[1], found[0])
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
    for wanted in ([0], [0, x], [0, w, x]):  # the engine takes these before anybody can add to them
        results = DOORS["aotviz.compile"](chain)(x, w)
        asked = [results[one] if isinstance(one, int) else one for one in wanted]
        with pytest.raises(Refused, match=r"asks for the gradient of output\[0\]"):
            torch.autograd.grad(results[2].sum(), asked)


def test_a_multi_grad_hook_gets_whole_gradients():
    found = []
    for call in (chain, DOORS["aotviz.compile"](chain)):
        heard = []
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
        results = call(x, w)
        torch.autograd.graph.register_multi_grad_hook(
            (results[0], results[2], x), lambda g, heard=heard: heard.append(list(g))
        )
        (results[0].sum() + results[2].sum()).backward()
        found.append(heard)
    torch.testing.assert_close(found[1], found[0])


def test_a_hook_that_fails_leaves_the_next_backward_alone():
    def use(call):
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
        results = call(x, w)
        failing = results[0].register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            results[2].sum().backward(retain_graph=True)
        failing.remove()
        assert len([key for key in results[0]._backward_hooks if isinstance(key, int)]) == 0
        results[2].sum().backward()
        return x.grad.tolist(), w.grad.tolist()

    assert use(DOORS["aotviz.compile"](chain)) == use(chain)


def test_a_result_with_hooks_is_saved_without_a_warning(tmp_path, recwarn):
    results = DOORS["aotviz.compile"](chain)(torch.ones(3, requires_grad=True), torch.ones(3))
    recwarn.clear()
    torch.save(results, tmp_path / "results.pt")
    assert not [warning for warning in recwarn if "hook" in str(warning.message)]


@pytest.mark.parametrize(
    ("fn", "create_graph", "why"),
    [
        (chain, True, "with create_graph=True, the hook would miss gradients of a second backward"),
        (lambda x, w: ((a := (x * w).view(9)), a[1:], a.sin()), False, "one of several views of one tensor"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(fn, create_graph, why):
    x, w = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    results = DOORS["aotviz.compile"](fn)(x, w)
    results[0].register_hook(lambda gradient: gradient * 2)
    with pytest.raises(Refused) as caught:
        sum(result.sum() for result in results).backward(create_graph=create_graph)
    assert caught.value.reason == "hook on a result"
    assert why in str(caught.value)
