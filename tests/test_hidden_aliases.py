"""Parts of a tensor that share its memory and that autograd does not know as views, by `unsafe_chunk` and its like."""

from __future__ import annotations

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from aotviz.lowerings import run_graph

SPLITS = {
    "unsafe_chunk": lambda t: t.unsafe_chunk(2),
    "unsafe_split": lambda t: t.unsafe_split(3),
    "unsafe_split_with_sizes": lambda t: torch.unsafe_split_with_sizes(t, [2, 4]),
    "two at once": lambda t: (t.unsafe_chunk(2)[0].unsafe_chunk(3)[0], t.unsafe_chunk(2)[1]),
}


@torch.no_grad()
def written_without_gradients(t, parts):
    t.mul_(0.5)


WRITES = {
    "nothing": lambda t, parts: None,
    "the tensor": lambda t, parts: t.mul_(0.5),
    "a view of the tensor": lambda t, parts: t[:1].mul_(0.5),
    "a detached alias": lambda t, parts: t.detach().mul_(0.5),
    "the tensor, without gradients": written_without_gradients,
    "a part": lambda t, parts: parts[0].mul_(0.5),
    "an unrelated tensor": lambda t, parts: t.cos().mul_(0.5),
}
RESULTS = {
    "a part": lambda t, parts: parts[0],
    "computed from a part": lambda t, parts: parts[0].cos(),
    "a view of a part": lambda t, parts: parts[0][:1],
    "the tensor": lambda t, parts: t,
    "computed from the tensor": lambda t, parts: t.cos(),
    "the other part": lambda t, parts: parts[1] * 2,
}
SEEN = {"the tensor": RESULTS.keys() - {"the tensor", "computed from the tensor"}}
SEEN |= {write: SEEN["the tensor"] for write in WRITES if "tensor," in write or "alias" in write or "view" in write}
SEEN |= {"a part": {"the tensor", "computed from the tensor"}}


def program(split, write, result):
    def f(x):
        t = x.sin()
        parts = SPLITS[split](t)
        WRITES[write](t, parts)
        return RESULTS[result](t, parts)

    return f


def outcome(fn, leaf):
    x = torch.linspace(0, 1, 6, requires_grad=leaf)
    result = fn(x)
    gradient = torch.autograd.grad(result.sin().sum(), x)[0].tolist() if leaf else None
    return result.tolist(), result.requires_grad, gradient


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("split", SPLITS)
def test_what_shares_memory_shows_what_it_shows_in_eager_or_is_refused(split, write, result, leaf):
    fn = program(split, write, result)
    expected = outcome(fn, leaf)
    compiled = aotviz.aot_function(fn, run_graph)
    if result in SEEN.get(write, ()):
        with pytest.raises(aotviz.Refused, match="unsafe_chunk or unsafe_split returned") as caught:
            outcome(compiled, leaf)
        assert caught.value.reason == "part that is not a view"
    else:
        assert outcome(compiled, leaf) == expected


@pytest.mark.filterwarnings("ignore::aotviz.RanInEager")
@pytest.mark.parametrize("write", WRITES)
def test_under_torch_compile_it_is_as_in_eager(write):
    torch._dynamo.reset()
    fn = program("unsafe_chunk", write, "a part")
    assert outcome(torch.compile(fn, backend="aotviz_eager"), True) == outcome(fn, True)


def test_a_part_of_an_argument_that_is_written_is_refused():
    def f(x):
        x.unsafe_chunk(2)[0].mul_(2)

    with pytest.raises(aotviz.Refused, match=r"mul_ writes"):
        aotviz.aot_function(f, run_graph)(torch.ones(4))


def test_an_lstm_which_writes_to_parts_that_nothing_else_reads_is_compiled():
    cell = torch.nn.LSTMCell(3, 2)
    x = torch.randn(4, 3)
    compiled = aotviz.compile(cell, backend="eager", options={"on_refusal": "raise"})
    torch.testing.assert_close(compiled(x), cell(x))
