"""Under torch.compile a refused graph runs in eager, as Dynamo captured it, and a warning and the recording say why."""

from __future__ import annotations

import warnings

import pytest
import torch

import aotviz
import aotviz.frontends.backend

BOTH = pytest.mark.parametrize("backend", ["aotviz_eager", "aotviz"])


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    aotviz.frontends.backend._warned.clear()
    yield
    torch._dynamo.reset()


def moved(x):
    y = x * 2
    view = y[0]
    y.t_()
    view.mul_(2)
    return y + 1


def overlapping(x):
    x.as_strided((3, 3), (1, 1)).mul_(2)
    return x + 1


def given():
    return torch.arange(12.0).view(3, 4).requires_grad_()


def written_twice(x):
    return x.expand(2, 4).add_(1)


@BOTH
def test_an_operator_that_raises_in_eager_raises_the_same_here(backend):
    with pytest.raises(RuntimeError) as eager:
        written_twice(torch.ones(4))
    with (
        aotviz.record() as recording,
        pytest.warns(aotviz.RanInEager, match="an operator raised RuntimeError: unsupported operation"),
        pytest.raises(RuntimeError) as ours,
    ):
        torch.compile(written_twice, backend=backend)(torch.ones(4))
    assert (type(ours.value), str(ours.value)) == (type(eager.value), str(eager.value))
    (compilation,) = recording.compilations
    assert compilation.data.error.ran_in_eager
    assert "an operator raised RuntimeError" in compilation.data.error.message


def test_a_backend_that_raises_refusals_raises_what_an_operator_raised():
    compiled = torch.compile(written_twice, backend="aotviz_eager", options={"on_refusal": "raise"})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="unsupported operation"):
        compiled(torch.ones(4))


def with_an_unused_qr(x):
    return x.sin().sum(), torch.linalg.qr(x, "r")[1]


def loss_of_nothing(x):
    return torch.nn.functional.mse_loss(x, torch.ones(0, 3))


@BOTH
@pytest.mark.parametrize(("function", "shape"), [(with_an_unused_qr, (3, 3)), (loss_of_nothing, (0, 3))])
def test_a_backward_that_cannot_be_traced_may_never_be_called(backend, function, shape):
    found = []
    for fn in (function, torch.compile(function, backend=backend)):
        x = torch.ones(shape, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", aotviz.RanInEager)
            results = fn(x)
        loss = results[0] if isinstance(results, tuple) else results
        loss.backward()
        found.append((loss.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0, equal_nan=True)


@BOTH
def test_a_refused_graph_gives_eagers_result_and_gradient_and_one_warning(backend):
    compiled = torch.compile(moved, backend=backend)
    x, twin = given(), given()
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager) as told:
        compiled(x).sum().backward()
    for argument, call in ((x, compiled), (twin, moved), (twin, moved)):
        call(argument).sum().backward()
    assert torch.equal(x.grad, twin.grad)
    (warning,) = (one for one in told if one.category is aotviz.RanInEager)
    assert warning.filename == __file__
    assert str(warning.message).startswith("moved runs in eager because aotviz refused its graph: ")
    assert "(t_)" in str(warning.message)
    (compilation,) = recording.compilations
    assert compilation.data.error.ran_in_eager
    assert compilation.data.error.place.startswith(f"{__file__}:")
    assert "ran in eager" in str(compilation)
    assert "failed" not in str(compilation)


def test_the_written_argument_is_written():
    x, twin = torch.arange(5.0), torch.arange(5.0)
    with pytest.warns(aotviz.RanInEager, match="overlapping runs in eager"):
        result = torch.compile(overlapping, backend="aotviz_eager")(x)
    assert torch.equal(result, overlapping(twin))
    assert torch.equal(x, twin)


def test_the_line_of_the_statement_is_named_where_the_trace_knows_it():
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager) as told:
        torch.compile(overlapping, backend="aotviz_eager")(torch.arange(5.0))
    line = overlapping.__code__.co_firstlineno + 1
    assert told[0].lineno == line
    assert "While executing" not in str(told[0].message)
    assert recording[0].data.error.place == f"{__file__}:{line} in overlapping"
    assert "While executing" not in recording[0].data.error.message


def test_a_recompile_that_is_refused_does_not_warn_twice():
    compiled = torch.compile(overlapping, backend="aotviz_eager", dynamic=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        compiled(torch.arange(5.0))
        compiled(torch.arange(6.0))
    assert [warning.category for warning in told].count(aotviz.RanInEager) == 1


def test_explain_says_ran_in_eager_and_not_failed():
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager):
        torch.compile(overlapping, backend="aotviz_eager")(torch.arange(5.0))
    said = str(recording.explain())
    assert "ran in eager: the function writes, by mul_" in said
    assert "in overlapping" in said
    assert "failed" not in said


def test_a_recording_of_it_is_saved_and_read(tmp_path):
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager):
        torch.compile(overlapping, backend="aotviz_eager")(torch.arange(5.0))
    recording.save(tmp_path / "one.aotviz")
    assert aotviz.load(tmp_path / "one.aotviz")[0].data.error == recording[0].data.error


@BOTH
def test_who_wants_the_error_gets_it(backend):
    compiled = torch.compile(overlapping, backend=backend, options={"on_refusal": "raise"})
    with aotviz.record() as recording, pytest.raises(Exception, match="by mul_") as caught:
        compiled(torch.arange(5.0))
    assert isinstance(caught.value.inner_exception, NotImplementedError)
    assert not recording[0].data.error.ran_in_eager


def test_another_answer_than_these_two_is_refused():
    compiled = torch.compile(torch.sin, backend="aotviz_eager", options={"on_refusal": "ignore"})
    with pytest.raises(Exception, match="'on_refusal' is 'ignore'; it can be 'eager' or 'raise'"):
        compiled(torch.ones(3))


def test_an_error_that_is_no_refusal_is_raised():
    def broken(*_, **__):
        raise ValueError("a fault of the partitioner's")

    compiled = torch.compile(lambda x: x.sin(), backend="aotviz_eager", options={"partition_fn": broken})
    with pytest.raises(Exception, match="a fault of the partitioner's"):
        compiled(torch.ones(3, requires_grad=True))


def test_the_rest_of_a_function_with_a_graph_break_is_compiled():
    def function(x):
        y = overlapping(x)
        torch._dynamo.graph_break()
        return y.sin()

    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager):
        result = torch.compile(function, backend="aotviz_eager")(torch.arange(5.0))
    assert torch.equal(result, function(torch.arange(5.0)))
    assert [bool(c.data.error and c.data.error.ran_in_eager) for c in recording.compilations] == [True, False]
