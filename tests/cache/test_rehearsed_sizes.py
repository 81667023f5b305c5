"""Operators whose fakes take any sizes: what raises on real data raises in a rehearsal too."""

from __future__ import annotations

import pytest
import torch

from aotviz.torch_private.fake_tensors import compare_sizes, mode_apart

aten = torch.ops.aten
INDEX = [torch.tensor([0, 1, 2])]
SOUND = {
    "index_put": (aten.index_put.default, (torch.zeros(4, 4), INDEX, torch.zeros(3, 4), True)),
    "index_put, broadcast": (aten.index_put.default, (torch.zeros(4, 4), [None, *INDEX], torch.zeros(()))),
    "index_put, a mask": (aten.index_put.default, (torch.zeros(4), [torch.ones(4) > 0], torch.zeros(4))),
    "_unsafe_index_put": (aten._unsafe_index_put.default, (torch.zeros(4, 4), INDEX, torch.zeros(3, 4))),
    "select_scatter": (aten.select_scatter.default, (torch.zeros(4, 3), torch.zeros(3), 0, 1)),
    "slice_scatter": (aten.slice_scatter.default, (torch.zeros(4, 3), torch.zeros(2, 3), 0, 1, 3)),
    "put": (aten.put.default, (torch.zeros(4, 4), INDEX[0], torch.zeros(3))),
    "embedding": (aten.embedding_dense_backward.default, (torch.zeros(3, 2), INDEX[0], 5, -1, False)),
    "bernoulli": (aten.bernoulli.p, (torch.zeros(3), 0.5)),
}
OTHER = {
    "index_put": (aten.index_put.default, (torch.zeros(4, 4), INDEX, torch.zeros(4, 4), True)),
    "_unsafe_index_put": (aten._unsafe_index_put.default, (torch.zeros(4, 4), INDEX, torch.zeros(2, 4))),
    "select_scatter": (aten.select_scatter.default, (torch.zeros(4, 3), torch.zeros(4), 0, 1)),
    "slice_scatter": (aten.slice_scatter.default, (torch.zeros(4, 3), torch.zeros(3, 3), 0, 1, 3)),
    "put": (aten.put.default, (torch.zeros(4, 4), INDEX[0], torch.zeros(2))),
    "embedding": (aten.embedding_dense_backward.default, (torch.zeros(4, 2), INDEX[0], 5, -1, False)),
    "bernoulli": (aten.bernoulli.p, (torch.zeros(3), 1.5)),
}


def of_fakes(operator, arguments):
    mode = mode_apart()
    with mode:
        compare_sizes(operator, torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments))


@pytest.mark.parametrize("case", SOUND)
def test_what_real_data_takes_is_taken(case):
    operator, arguments = SOUND[case]
    operator(*arguments)
    of_fakes(operator, arguments)


@pytest.mark.parametrize("case", OTHER)
def test_what_real_data_refuses_is_refused(case):
    operator, arguments = OTHER[case]
    with pytest.raises((RuntimeError, IndexError)):
        operator(*arguments)
    with pytest.raises((RuntimeError, ValueError)):
        of_fakes(operator, arguments)
