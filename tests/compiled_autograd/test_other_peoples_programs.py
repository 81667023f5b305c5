"""Captured backwards of programs that were not written for this: models, training loops, torch's test databases."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.hop_db import hop_db

import aotviz
from tests.oracle.compare import CANDIDATES, expect, judge, same
from tests.oracle.models import FAMILIES, MORE
from tests.oracle.sweep_ops import LEFT_OUT, Samples, name_of
from tests.oracle.training import LOOPS, loop_named
from tests.parity.sections.models import problem, step
from tests.tiers import in_turns, slow

pytestmark = pytest.mark.filterwarnings("ignore::aotviz.RanInEager")
BY_DYNAMO = ("xlm", "qwen2_moe")  # see tests/test_model_families.py
WAYS = {"eager": lambda fn: fn, "compiled": lambda fn: aotviz.compile(fn, backend="eager")}


@pytest.fixture(autouse=True)
def nothing_captured():
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    yield
    aotviz.compiled_autograd.reset()


MODELS = [
    (name, way) if name in ("gpt2", "lstm", "cohere") and way == "eager" else slow(name, way)
    for turn, name in enumerate({**FAMILIES, **MORE})
    for way in WAYS
    if way == "eager" or turn % 3 == 0  # where the model is compiled, its operators are nodes of the backward no more
]


@pytest.mark.parametrize(("name", "way"), MODELS)
def test_a_training_step_of_a_model_equals_eager(name, way):
    pytest.importorskip("transformers")
    expected = step(name, lambda module: module, shallow=True)
    compiled = WAYS[way]
    if way == "compiled" and name in BY_DYNAMO:

        def compiled(module):
            return torch.compile(module, backend="aotviz_eager")

    with aotviz.compiled_autograd(backend="eager") as recording:
        found = step(name, compiled, shallow=True)
    assert problem(expected, found) == ""
    captured = [one for one in recording if one.kind == "compiled autograd"]
    assert captured
    assert not [one.data.error for one in captured if one.data.error]


@pytest.mark.parametrize(("name", "way"), in_turns(LOOPS, WAYS, every=4))
def test_a_training_loop_leaves_what_eager_leaves(name, way):
    expected = loop_named(name)
    with aotviz.compiled_autograd(backend="eager"):
        found = loop_named(name, WAYS[way])
    assert found.keys() == expected.keys()
    assert [key for key in expected if not same(expected[key], found[key])] == []


def verdicts(samples, candidate, brief=False):
    """Which programs do not equal eager, and how; `brief`ly, after one backward."""
    found = {}
    for key, program in samples:
        if isinstance(program, str):  # there is none, for this reason
            continue
        try:
            expected = expect(program, brief=brief)
        except Exception:  # eager raises, for this dtype
            continue
        verdict = judge(program, candidate(), expected)
        is_refused = bool(verdict.failures) and all(
            failure.refusal for _, failure in verdict.failures
        )  # the forward is
        if verdict.status not in ("equal", "details") and not is_refused:
            found[key] = str(verdict)[:400]
    return found


@pytest.mark.parametrize(
    ("op", "name"),
    in_turns(autograd_function_db, ["whole", "ours-whole"]),
    ids=lambda of: of if isinstance(of, str) else name_of(of),
)
def test_custom_functions_of_torchs_database_equal_eager(op, name):
    assert verdicts(Samples(op), CANDIDATES[name]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in hop_db if torch.float32 in op.supported_dtypes("cpu")], ids=name_of)
def test_higher_order_operators_equal_eager(op):
    limit = 1 if "nested" in name_of(op) else 4  # each takes 10 s
    assert verdicts(Samples(op, limit), CANDIDATES["whole"]) == {}


DIFFERENTIABLE = [op for op in op_db if torch.float32 in op.supported_backward_dtypes("cpu") and op.supports_autograd]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(DIFFERENTIABLE), 40))
def test_gradients_of_operators_equal_eager(first):
    wrong = {}
    for turn, op in enumerate(DIFFERENTIABLE[first : first + 40]):
        if name_of(op) not in LEFT_OUT:  # a second backward, a part of one and a write in between are of no operator
            wrong |= verdicts(Samples(op, limit=1), CANDIDATES["whole"], brief=turn % 8 > 0)
    assert wrong == {}
