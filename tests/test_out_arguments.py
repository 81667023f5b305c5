"""What is given as `out=` is resized where it has another shape than the result, as in eager."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.torch_private import versions
from tests.doors import alone

GROWS = pytest.mark.skipif(versions.has("an input that grows is taken for a view"), reason="refused on this torch")


def seen(fn, *args):
    result = fn(*args)
    return [(t.clone(), t._version, t.untyped_storage().nbytes(), result is t) for t in args]


@GROWS
@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda a, b, out: torch.add(a, b, out=out), ((3,), (3,), (0,))),
        (lambda a, b, out: torch.add(a, b, out=out), ((3,), (3,), (2,))),
        (lambda a, b, out: torch.add(a, b, out=out), ((3,), (3,), (5,))),
        (lambda a, b, out: torch.add(a, b, out=out), ((2, 3), (2, 3), (3, 2))),
        (lambda a, b, out: torch.mm(a, b, out=out), ((2, 2), (2, 2), (0,))),
        (lambda a, b, out: torch.cat([a, b], out=out), ((3,), (2,), (0,))),
        (lambda a, b, out: torch.add(a, b, out=out).mul_(2).sum(), ((3,), (3,), (0,))),
    ],
)
def test_it_equals_eager(fn, shapes):
    found = []
    for one in (fn, aotviz.compile(fn, backend="eager")):
        found.append(seen(one, *(torch.arange(float(torch.Size(s).numel())).reshape(s) for s in shapes)))
    torch.testing.assert_close(found[1], found[0])


@GROWS
def test_what_was_resized_can_be_viewed_and_gives_gradients():
    def f(a, w, out):
        with torch.no_grad():
            torch.mul(a, w, out=out)
        return out.view(-1) * w

    gradients = []
    for fn in (f, aotviz.compile(f, backend="eager")):
        w = torch.full((3,), 2.0, requires_grad=True)
        fn(torch.ones(3), w, torch.empty(0)).sum().backward()
        gradients.append(w.grad)
    assert torch.equal(gradients[1], gradients[0])


@GROWS
def test_of_several_each_gets_its_shape():
    def f(x, values, places):
        torch.topk(x, 2, out=(values, places))
        return values * 1

    for fn in (f, aotviz.compile(f, backend="eager")):
        values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
        fn(torch.tensor([1.0, 3.0, 2.0]), values, places)
        assert (values.tolist(), places.tolist()) == ([3.0, 2.0], [1, 2])


def test_symbolic_sizes_are_refused_by_the_statement():
    compiled = alone(lambda x, out: torch.sin(x, out=out), dynamic=True)
    with pytest.raises(aotviz.Refused, match="out=out") as caught:
        compiled(torch.ones(4), torch.empty(3))
    assert caught.value.reason == "resize of a symbolic shape"


def test_what_is_pending_stays_in_the_trace():
    def f(x, scale, out):
        scale.add_(1)
        torch.div(x, scale.expand_as(x), out=out)
        return out * 1

    found = []
    for fn in (f, aotviz.compile(f, backend="eager")):
        for start in (1.0, 2.0):  # a value of the trace would be right for none of the calls
            scale, out = torch.full((1,), start), torch.empty(3)
            found.append((fn(torch.arange(3.0), scale, out), scale, out))
    assert str(found[:2]) == str(found[2:])
