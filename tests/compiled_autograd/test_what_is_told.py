"""What runs in eager is told in one sentence, which names autograd's node and not the user's function."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import aotviz
from tests.compiled_autograd.programs import leaf


@pytest.fixture(autouse=True)
def forget():
    aotviz.compiled_autograd.reset()
    yield
    aotviz.compiled_autograd.reset()


def sparse_gradient():
    (nn.Embedding(10, 3, sparse=True)(torch.tensor([1, 2])) * 2).sum().backward()


def sparse_input():
    sparse = torch.eye(3).to_sparse().requires_grad_()
    torch.sparse.mm(sparse, leaf(3, 3)).sum().backward()


def operator_without_a_fake():
    for steps in (5, 6):  # with symbols at the second size
        scores = leaf(steps, 2, 4).log_softmax(2)
        lengths = torch.full((2,), 5), torch.full((2,), 2)
        nn.functional.ctc_loss(scores, torch.tensor([[1, 2], [1, 3]]), *lengths).backward()


def ragged():
    whole = torch.nested.as_nested_tensor([leaf(2, 3), leaf(4, 3)], layout=torch.jagged)
    (whole * 2).to_padded_tensor(0.0).sum().backward()


def told(program, backend="eager", **arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with aotviz.compiled_autograd(backend=backend, **arguments) as recording:
            program()
    return [str(one.message) for one in caught if one.category is aotviz.RanInEager], recording


PART = "a part of a backward runs operator by operator because"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (sparse_gradient, f"{PART} EmbeddingBackward0 cannot be compiled: it creates a tensor without strides"),
        (
            sparse_input,
            f"{PART} SparseAddmmBackward0 cannot be compiled: its input 'sparse' is a sparse_coo tensor;"
            " aotviz compiles strided tensors only",
        ),
        (
            operator_without_a_fake,
            f"{PART} CtcLossBackward0 cannot be compiled: its operator aten._ctc_loss_backward.default cannot run on"
            " FakeTensors, with which graphs are traced",
        ),
        (
            ragged,
            "a backward runs in autograd's engine because it could not be captured (NotImplementedError: NestedTensor"
            " support not implemented.)",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_one_sentence_says_what_runs_in_eager_and_why(program, text):
    texts, recording = told(program)
    assert set(texts) == {text}
    (reason,) = {one.data.error.message for one in recording if one.data.error is not None}
    assert text.endswith(reason)


def test_a_backward_that_eager_cannot_run_raises_its_error_without_a_warning():
    def expanded():
        x = leaf(3)
        x.grad = torch.zeros(1).expand(3)
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            (x * 2).sum().backward()

    assert told(expanded)[0] == []


def test_an_error_of_the_compiler_is_told_by_its_first_line():
    def compiler(graph_module, example_inputs):
        raise ValueError("no code for this\nframe #0: and its stack")

    texts, _ = told(lambda: leaf(3).sin().sum().backward(), backend=compiler)
    assert texts == [f"{PART} it cannot be compiled: ValueError: no code for this"]


def test_a_refusal_that_is_raised_is_the_refusal():
    with pytest.raises(aotviz.Refused, match="tensor without strides"):
        told(sparse_gradient, options={"on_refusal": "raise"})


def test_the_evidence_of_eagers_order_is_its_own():
    model = aotviz.compile(lambda x, w: (x * w).sin(), backend="eager", cache=False)
    _, recording = told(lambda: model(leaf(3), leaf(3)).sum().backward())
    evidence = recording[0].evidence
    copied = evidence[evidence.reason.str.startswith("copied from the backward")]
    assert list(copied.stage) == ["capture"]
