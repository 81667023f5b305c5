"""flatten: from any call to a flat list of fakes with the user's names."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace

import pytest
import torch

from aotviz.frontends.requests import request_for
from aotviz.ir import verify
from aotviz.ir.descriptors import BufferInput, ParameterInput, PlainInput
from aotviz.lowerings import lowering_named
from aotviz.stages import flatten
from tests.stages.support import evidence

torch.set_num_threads(1)
X = torch.ones(2, 3)
Point = namedtuple("Point", "x y")


def flat(fn, *args, root=None, dynamic=False, **kwargs):
    request = request_for(fn, args, kwargs, lowering_named("eager").options(dynamic=dynamic), root_module=root)
    fields = dict(vars(request))
    result = flatten.run(request)
    assert vars(request) == fields
    verify.verify(result, "flatten")
    return result


def names(call):
    return [d.name for d in call.descriptors]


def test_inputs_have_the_names_of_the_functions_parameters():
    assert names(flat(lambda image, mask: image, X, X)) == ["image", "mask"]


def test_leaves_of_pytrees_are_named_by_their_path():
    def f(batch, point, rest):
        return batch["ids"]

    call = flat(f, {"ids": X, "mask": [X, 3]}, Point(X, X), (X,))
    assert names(call) == ["batch['ids']", "batch['mask'][0]", "batch['mask'][1]", "point.x", "point.y", "rest[0]"]


def test_variadic_arguments_are_numbered_by_position_and_keywords_named():
    def f(first, *rest, **others):
        return first

    assert names(flat(f, X, X, X, scale=X, bias=2)) == ["first", "args[1]", "args[2]", "scale", "bias"]


def test_a_builtin_without_a_signature_has_its_arguments_numbered():
    assert names(flat(torch.add, X, X)) == ["args[0]", "args[1]"]


def test_parameters_and_buffers_come_first_under_their_own_names():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    call = flat(module, X, root=module)
    assert names(call) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked", "input",
    ]  # fmt: skip
    kinds = [type(d) for d in call.descriptors]
    assert kinds == [ParameterInput] * 4 + [BufferInput] * 3 + [PlainInput]
    assert call.static_inputs == tuple(range(7))
    assert [d.index for d in call.descriptors] == list(range(8))


def test_tensors_become_fakes_of_the_same_layout_and_other_values_stay():
    x = torch.ones(4, 3, requires_grad=True).t()
    call = flat(lambda x, n, flag, none, text: x, x, 2, True, None, "mean")
    fake = call.args[0]
    assert type(fake).__name__ == "FakeTensor"
    assert (fake.shape, fake.stride(), fake.requires_grad, fake.is_leaf) == (x.shape, x.stride(), True, False)
    assert call.args[1:] == (2, True, None, "mean")


def test_the_flat_function_gives_the_users_pytrees_back():
    def f(batch, *, scale):
        return {"out": batch["x"] * scale}

    call = flat(f, {"x": X}, scale=3)
    assert call.fn(X, 3)["out"].tolist() == (X * 3).tolist()


def test_the_flat_function_of_a_module_uses_the_tensors_that_it_is_given():
    module = torch.nn.Linear(3, 1, bias=False)
    call = flat(module, X, root=module)
    assert call.fn(torch.full((1, 3), 2.0), X).tolist() == [[6.0], [6.0]]
    assert isinstance(module.weight, torch.nn.Parameter)


def test_a_duplicate_points_at_its_first_occurrence_with_a_reason():
    call = flat(lambda a, b, c, d: a, X, 3, X, X)
    assert call.duplicate_of == (None, None, 0, 0)
    assert evidence(call) == {"c": "it is the same tensor as a", "d": "it is the same tensor as a"}


def test_equal_tensors_and_views_are_no_duplicates():
    assert flat(lambda a, b, c: a, X, X.clone(), X.view(2, 3)).duplicate_of == (None, None, None)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_tensor_is_refused_by_its_name(layout):
    sparse = X.to_sparse(layout=layout)
    with pytest.raises(NotImplementedError, match=rf"input \"batch\['edges'\]\" is a {str(layout)[6:]} tensor"):
        flat(lambda batch: batch, {"edges": sparse})


def test_with_dynamic_shapes_arguments_have_symbolic_sizes_and_parameters_do_not():
    module = torch.nn.Linear(3, 5)
    call = flat(module, torch.ones(4, 3), root=module, dynamic=True)
    weight, _, x = call.args
    assert all(type(size) is int for size in weight.shape)
    assert any(isinstance(size, torch.SymInt) for size in x.shape)


def test_a_wrong_number_of_given_names_is_an_error():
    request = request_for(lambda a, b: a, (X, X), {}, lowering_named("eager").options())
    with pytest.raises(ValueError, match="1 input names were given for 2 inputs"):
        flatten.run(replace(request, input_names=("a",)))
