"""Where Dynamo fails, the program runs in eager and says why, unless it was asked to raise."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import aotviz
from aotviz.torch_private import versions

Function = Callable[..., object]


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1.1, 1.3, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def part_of_a_written_base(x: torch.Tensor) -> torch.Tensor:
    part = x.chunk(2)[0]
    x.detach().mul_(2)
    with torch.no_grad():
        x.sin_()
    torch._dynamo.graph_break()
    return part.detach() * 2


def size_that_a_write_changed(x: torch.Tensor) -> torch.Tensor:
    row = x.as_strided((2,), (2,), 1)
    row.unsqueeze_(0)
    row.narrow(1, 0, 2).sub_(0.5)
    return x * 2


def sum_of_a_view_with_a_lost_history(x: torch.Tensor) -> torch.Tensor:
    part = x.tensor_split(2)[0]
    whole = x.view(2, 2, 2)
    found = part.view(torch.int32).view(torch.float32) * 2
    with torch.no_grad():
        x.sin_()
    unread = whole.sum(0)
    return found + unread.detach()


LOST = "a view whose history can't be made again"
PROGRAMS: dict[str, tuple[Function, Callable[[], tuple[torch.Tensor, ...]]]] = {
    LOST: (part_of_a_written_base, lambda: (leaf(4, 3),)),
    "a dimension that Dynamo does not know": (size_that_a_write_changed, lambda: (leaf(4, 2) * 1.5,)),
    "an operator that fails on fakes": (sum_of_a_view_with_a_lost_history, lambda: (leaf(2, 2, 2),)),
}


FAILS_AT_LOST = pytest.mark.skipif(
    not versions.has("Dynamo fails at a view whose history is lost"), reason="Dynamo does not fail at it"
)
FAIL = [pytest.param(name, marks=FAILS_AT_LOST if name == LOST else ()) for name in PROGRAMS]


@pytest.mark.parametrize("name", FAIL)
def test_dynamo_fails_and_the_result_is_eagers(name: str) -> None:
    function, inputs = PROGRAMS[name]
    with pytest.raises(Exception, match=r".") as raised:  # the fault is there: Dynamo alone fails
        torch.compile(function, backend="eager")(*inputs())
    assert "torch._dynamo" in "".join(str(frame.path) for frame in raised.traceback).replace("/", ".")
    torch._dynamo.reset()
    found = aotviz.verify(function, *inputs())
    assert found.equal, str(found)
    assert "Dynamo fails at it" in str(found)


def shapes_do_not_fit(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y + torch.ones(7)


def test_a_view_whose_history_is_lost_is_eagers_whether_dynamo_fails_or_not() -> None:
    function, inputs = PROGRAMS[LOST]
    assert aotviz.verify(function, *inputs()).equal


@pytest.mark.parametrize("name", FAIL)
def test_it_says_why_at_the_line(name: str) -> None:
    function, inputs = PROGRAMS[name]
    compiled = aotviz.compile(function, backend="eager")
    with pytest.warns(UserWarning, match=r"runs in eager because Dynamo fails at it: ") as told:
        compiled(*inputs())
    first = function.__code__.co_firstlineno
    assert all(one.filename == __file__ and first < one.lineno <= first + 8 for one in told)
    said = " ".join(str(compiled.recording.explain()).split())
    assert re.search(r"Dynamo fails at it|`sum` raised RuntimeError", said)
    assert said.count("RuntimeError") <= 1  # it is told once


def test_a_program_that_is_wrong_raises_what_eager_raises() -> None:
    with pytest.raises(RuntimeError) as eager:
        shapes_do_not_fit(torch.ones(3))
    with pytest.raises(RuntimeError) as ours:
        torch.compile(shapes_do_not_fit, backend="aotviz_eager")(torch.ones(3))
    assert str(ours.value) == str(eager.value)
    assert type(ours.value) is type(eager.value)


@pytest.mark.parametrize("function", [shapes_do_not_fit, part_of_a_written_base])
def test_what_is_asked_for_whole_raises_as_with_torchs_backend(function: Function) -> None:
    def raised(backend: str) -> BaseException:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r".") as found:
            torch.compile(function, backend=backend, fullgraph=True)(leaf(4, 3))
        return found.value

    assert (type(raised("aotviz_eager")), str(raised("aotviz_eager"))) == (type(raised("eager")), str(raised("eager")))


def test_nothing_runs_in_eager_where_a_graph_break_is_an_error() -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(True):
            return shapes_do_not_fit(x)

    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="broadcast"):
        torch.compile(whole, backend="aotviz_eager")(torch.ones(3))


def test_torchs_own_backends_are_left_alone() -> None:
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError):
        torch.compile(shapes_do_not_fit, backend="eager")(torch.ones(3))


def test_an_error_of_a_users_stage_is_not_hidden() -> None:
    def on_stage(*_: object) -> None:
        raise AssertionError("mine")

    with pytest.raises(Exception, match="mine"):
        torch.compile(lambda x: x.sin(), backend="aotviz_eager", options={"on_stage": on_stage})(torch.ones(3))


def test_the_rest_of_the_function_is_compiled() -> None:
    compiled = aotviz.compile(sum_of_a_view_with_a_lost_history, backend="eager")
    with pytest.warns(UserWarning, match="a call in `sum_of_a_view_with_a_lost_history` runs in eager"):
        compiled(leaf(2, 2, 2))
    assert "aten.mul" in compiled.recording[1].graph("inference").code
