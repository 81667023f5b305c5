"""The oracle is worth what it catches: each broken compiler below must be found out, and eager must pass as eager."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_map_only

from tests.oracle import compare, strategy
from tests.oracle.compare import Candidate, judge
from tests.oracle.programs import PROGRAMS


def on_outputs(change):
    """A compiler whose every output tensor is passed through `change`."""
    return Candidate("broken", lambda fn, dynamic: lambda *a, **k: tree_map_only(torch.Tensor, change, fn(*a, **k)))


def on_inputs(change):
    """A compiler that calls the function on changed inputs."""
    return Candidate("broken", lambda fn, dynamic: lambda *a, **k: fn(*tree_map_only(torch.Tensor, change, a), **k))


def around(call):
    return Candidate("broken", lambda fn, dynamic: lambda *a, **k: call(fn, a, k))


def bump_first(fn, args, kwargs):
    result = fn(*args, **kwargs)
    torch._C._autograd._unsafe_set_version_counter((args[0],), (args[0]._version + 1,))
    return result


def leave_grad_off(fn, args, kwargs):
    result = fn(*args, **kwargs)
    torch.set_grad_enabled(False)
    return result


def zero_gradients(fn, args, kwargs):
    """Every output depends on every input, so gradients that eager leaves None become zero."""
    result = fn(*args, **kwargs)
    nothing = sum((a.sum() * 0 for a in args), torch.zeros(()))
    return tree_map_only(torch.Tensor, lambda o: o + nothing, result)


class TripledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 3


BROKEN = [
    ("plain_arithmetic", on_outputs(lambda o: o + 1e-2), "values"),
    ("plain_arithmetic", on_outputs(lambda o: o.double()), "dtype"),
    ("plain_arithmetic", on_outputs(lambda o: o[None]), "shape"),
    ("plain_arithmetic", on_outputs(lambda o: o.t().contiguous().t()), "stride"),
    ("plain_arithmetic", on_outputs(lambda o: o.detach()), "requires_grad"),
    ("plain_arithmetic", on_outputs(lambda o: o.detach().requires_grad_()), "is_leaf"),
    ("plain_arithmetic", on_outputs(TripledGradient.apply), "gradient"),
    ("plain_arithmetic", around(leave_grad_off), "mode"),
    ("plain_arithmetic", around(lambda fn, a, k: list(fn(*a, **k))), "structure"),
    ("outputs_with_disjoint_inputs", around(zero_gradients), "gradient is None"),
    ("only_the_input_is_returned", on_outputs(lambda o: o.clone()), "object"),
    ("input_returned_twice", on_outputs(lambda o: o.clone()), "object"),
    ("view_of_input", on_outputs(lambda o: o.clone()), "storage sharing"),
    ("view_of_input", on_outputs(lambda o: o.clone()), "base"),
    ("view_of_input", on_outputs(lambda o: o.clone()), "write seen"),
    ("two_views_of_one_intermediate", on_outputs(lambda o: o.clone()), "storage sharing"),
    ("plain_input_is_mutated", on_inputs(lambda x: x.clone()), "values"),
    ("plain_input_is_mutated", on_inputs(lambda x: x.clone()), "version bump"),
    ("plain_input_is_mutated", around(bump_first), "version count"),
    ("non_leaf_input_is_mutated", on_inputs(lambda x: x.detach()), "requires_grad"),
    ("plain_input_is_transposed_in_place", on_inputs(lambda x: x.clone()), "shape"),
    ("input_is_set_to_another_input", on_inputs(lambda x: x.clone()), "storage sharing"),
    ("storage_is_freed", on_inputs(lambda x: x.clone()), "storage size"),
    ("numbers_strings_and_none", around(lambda fn, a, k: (*fn(*a, **k)[:-1], 1)), "type"),
    ("size_is_returned", around(lambda fn, a, k: (4, *fn(*a, **k)[1:])), "value"),
]


@pytest.mark.parametrize(("program", "candidate", "kind"), BROKEN, ids=[f"{kind}-{p}" for p, _, kind in BROKEN])
def test_a_broken_compiler_is_found_out(program, candidate, kind):
    verdict = judge(PROGRAMS[program], candidate)
    assert kind in {d.kind for d in verdict.differences}, str(verdict)
    assert verdict.status == ("details" if kind in compare.DETAILS else "wrong")


def test_a_compiler_that_raises_is_reported_with_its_message():
    def refuse(fn, args, kwargs):
        raise NotImplementedError("no such thing")

    verdict = judge(PROGRAMS["plain_arithmetic"], around(refuse))
    assert verdict.status == "raised"
    assert str(verdict.failure) == "call: NotImplementedError: no such thing"


def test_a_program_that_eager_refuses_is_not_judged():
    program = strategy.from_source("leaf", "import torch\ndef inputs():\n    return (torch.ones(2).requires_grad_(),)\n"
                                   "def f(x):\n    return x.mul_(2)\n")  # fmt: skip
    assert judge(program, compare.eager_itself()).status == "eager raised"


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_equals_itself(name):
    verdict = judge(PROGRAMS[name], compare.eager_itself())
    assert verdict.status == "equal", str(verdict)


def test_a_seed_and_an_index_name_one_program():
    assert strategy.from_seed(5, 7).draft == strategy.from_seed(5, 7).draft
    assert strategy.from_seed(5, 7).draft != strategy.from_seed(5, 8).draft


@pytest.mark.slow
def test_random_programs_reach_every_corner():
    text = "\n".join(strategy.from_seed(1, k).draft.source() for k in range(150))
    words = "no_grad detach() t_() squeeze_ unbind split as_strided expand copy_ zero_() requires_grad_() transpose("
    for word in [*words.split(), "diagonal", "narrow", "chunk"]:
        assert word in text, word


def test_shrinking_keeps_the_failure_and_drops_the_rest():
    drops_writes = on_inputs(lambda x: x.clone())
    large = next(d for k in range(50) if len((d := strategy.from_seed(2, k)).draft.body) >= 5
                 and judge(d.program, drops_writes).status == "wrong")  # fmt: skip
    small = strategy.shrink(large, lambda d: judge(d.program, drops_writes, d.expected).status == "wrong")
    assert judge(small.program, drops_writes).status == "wrong"
    assert len(small.draft.source()) < len(large.draft.source())


def test_shrinking_passes_by_a_program_whose_inputs_eager_cannot_make():
    hooked = strategy.Draft(
        name="hooked",
        setup=("a = torch.ones(4)", "a.requires_grad_()", "a.register_hook(lambda gradient: gradient * 2.0)"),
        passed=("a",),
        body=("v0 = p0 * 2.0", "v1 = v0.sin()"),
        returned=("v0",),
        deep=True,
    )
    small = strategy.shrink(strategy.realize(hooked), lambda drawn: "register_hook" in drawn.draft.source())
    assert small.draft.setup == hooked.setup
    assert small.draft.body == hooked.body[:1]
