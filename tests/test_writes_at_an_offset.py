"""Whether a write overlaps what it reads is judged in the caller's memory, also after an input was written."""

from __future__ import annotations

import pytest
import torch

from tests.doors import alone


def of_other_rows(x):
    first = x[:1]
    x.add_(1)
    rest = x[1:]
    rest.add_(first)
    return rest * 1


def of_the_rows_before(x):
    first = x[:2]
    x.add_(1)
    rest = x[1:]
    rest.add_(first)
    return rest * 1


def of_the_same_rows(x):
    first = x[:2]
    x.add_(1)
    again = x[:2]
    again.add_(first)
    return again * 1


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("fn", [of_other_rows, of_the_rows_before, of_the_same_rows])
def test_a_write_after_a_write_is_judged_as_in_eager(fn, offset):
    def made():
        return torch.arange(15.0).reshape(5, 3)[offset:][:3]

    x, y = made(), made()
    try:
        expected = fn(x)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:40]):
            alone(fn)(y)
        return
    assert torch.equal(alone(fn)(y), expected)
    assert torch.equal(x, y)
