"""Inductor's code is loaded by a key that an entry names: it must take the inputs of the entry's graph."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from aotviz.torch_private.inductor_results import fits

CODE = """
def partition_0(args):
    buf0 = args

class Runner:
    def call(self, args):
        primals_1, s0, tangents_1 = args
        args.clear()
        assert_size_stride(primals_1, (4, s0), (s0, 1), 'input')
        assert_size_stride(tangents_1, (4, 3), (3, 1), 'input')
"""


def takes(*inputs: object, code: str = CODE) -> bool:
    return fits(SimpleNamespace(source_code=code), inputs)


def test_code_takes_its_own_inputs() -> None:
    assert takes(torch.ones(4, 7), 7, torch.ones(4, 3))
    assert takes(torch.ones(1), code="")  # another compiler's
    assert takes(torch.ones(1), code="    def call(self, args):\n        primals_1, = args\n")


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.ones(4, 7), 7),
        (torch.ones(4, 7), 7, torch.ones(4, 3), 1),
        (torch.ones(4, 7), 7, torch.ones(3, 4)),
        (torch.ones(4, 7), 7, torch.ones(3, 4).t()),
        (torch.ones(5, 7), 7, torch.ones(4, 3)),
    ],
    ids=["fewer", "more", "another size", "other strides", "another size beside a symbol"],
)
def test_other_inputs_are_not_given_to_it(inputs: tuple[object, ...]) -> None:
    assert not takes(*inputs)
