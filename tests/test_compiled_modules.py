"""aotviz.compile of modules: what comes out is a module of the same class, which runs what was compiled."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn

import aotviz

torch.set_num_threads(1)


def compiled(fn, **options):
    return aotviz.compile(fn, backend="eager", **options)


def count(function):
    return len(function.recording.compilations)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.5)
        self.note = "hello"

    def forward(self, x, scale=1.0):
        return self.drop(self.fc(x)) * scale

    def size(self):
        return sum(p.numel() for p in self.parameters())


def test_a_compiled_module_shares_the_originals_parameters():
    net = Net()
    module = compiled(net)
    assert isinstance(module, nn.Module)
    assert [id(p) for p in module.parameters()] == [id(p) for p in net.parameters()]
    module(torch.ones(4, 3)).sum().backward()
    assert net.fc.weight.grad is not None
    with torch.no_grad():
        net.fc.weight.zero_()
        net.fc.bias.fill_(1.0)
    module.eval()
    assert module(torch.ones(1, 3)).tolist() == [[1, 1]]


def test_a_state_dict_goes_from_one_compiled_module_to_another():
    first, second = compiled(Net()).eval(), compiled(Net()).eval()
    second.load_state_dict(first.state_dict())
    x = torch.ones(1, 3)
    assert torch.equal(first(x), second(x))


def test_attributes_and_methods_of_the_original_are_reached():
    module = compiled(Net())
    assert (module.note, module.size()) == ("hello", 8)
    assert module.fc.in_features == 3
    with pytest.raises(AttributeError, match="nothing"):
        module.nothing  # noqa: B018


def test_a_compiled_module_is_one_of_the_same_class_that_shares_everything_with_the_original():
    net = Net()
    module = compiled(net)
    assert type(module).__name__ == "Net"
    assert isinstance(module, Net)
    assert list(module.state_dict()) == list(net.state_dict()) == ["fc.weight", "fc.bias"]
    assert inspect.signature(module.forward) == inspect.signature(net.forward)
    module.eval()
    assert not net.training
    assert not net.fc.training
    net.note = "changed"
    module.fc = nn.Linear(3, 2)
    assert module.note == "changed"
    assert net.fc is module.fc
    x = torch.ones(1, 3)
    assert torch.equal(module(x), net(x))
    assert list(nn.Sequential(module).state_dict()) == ["0.fc.weight", "0.fc.bias"]


def test_a_method_of_a_compiled_module_that_calls_the_module_runs_what_was_compiled():
    class Trained(Net):
        def step(self, x):
            return self(x).sum()

    module = compiled(Trained().eval())
    module.step(torch.ones(1, 3)).backward()
    assert count(module) == 1
    assert module.fc.weight.grad is not None


def test_a_class_that_keeps_a_list_of_its_subclasses_hears_of_none():
    heard = []

    class Listed(Net):
        def __init_subclass__(cls, *, label, **kwargs):
            heard.append(label)

    assert compiled(Listed().eval())(torch.ones(1, 3)).shape == (1, 2)
    assert heard == []


def test_a_forward_that_is_put_around_the_compiled_one_calls_it():
    """As Accelerate does for mixed precision."""
    net = Net().eval()
    module, expected = compiled(net), net(torch.ones(1, 3)) * 2
    before = module.forward
    module.forward = lambda x: before(x) * 2
    assert torch.equal(module(torch.ones(1, 3)), expected)
    assert torch.equal(net(torch.ones(1, 3)) * 2, expected)
    assert count(module) == 1


def test_inputs_of_a_module_of_torchs_have_the_names_of_its_arguments():
    module = compiled(nn.Linear(3, 2))
    module(torch.ones(1, 3))
    assert list(module.recording[0].inputs["name"]) == ["weight", "bias", "input"]
    assert module.recording[0].name.startswith("Linear [")


def test_hooks_of_a_module_are_heard_once():
    module, heard = compiled(Net().eval()), []
    module.register_forward_hook(lambda module, inputs, output: heard.append(tuple(output.shape)))
    module(torch.ones(1, 3))
    assert heard == [(1, 2)]


def test_a_copy_of_a_compiled_module_is_compiled_and_has_weights_of_its_own():
    module, x = compiled(Net().eval()), torch.ones(1, 3)
    expected = module(x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.fc.weight is not module.fc.weight
        assert torch.equal(other(x), expected)
        assert count(other) == 1


def test_what_compiles_a_caller_compiles_the_compiled_functions_that_it_calls():
    module, scale = compiled(Net().eval()), compiled(lambda x: x * 2)
    outer = torch.compile(lambda x: scale(module(x)), backend="eager", fullgraph=True)
    assert torch.equal(outer(torch.ones(1, 3)), module.fc(torch.ones(1, 3)) * 2)
    assert count(module) == count(scale) == 0
    outer = compiled(lambda x: scale(module(x)))
    assert torch.equal(outer(torch.ones(1, 3)), module.fc(torch.ones(1, 3)) * 2)
    assert (count(outer), count(module), count(scale)) == (1, 0, 0)


def test_train_and_eval_are_two_programs():
    module, x = compiled(Net()), torch.ones(1, 3)
    module.eval()
    assert torch.equal(module(x), module.fc(x))
    module.train()
    assert set((module(x) / (2 * module.fc(x))).round().flatten().tolist()) <= {0.0, 1.0}
    assert count(module) == 2
    module.eval()
    assert torch.equal(module(x), module.fc(x))
    assert count(module) == 2


def test_a_parameter_that_is_replaced_or_frozen_is_noticed():
    module, x = compiled(nn.Linear(2, 1, bias=False)), torch.ones(1, 2)
    assert module(x).requires_grad
    module.weight.requires_grad_(False)
    assert not module(x).requires_grad
    module.weight = nn.Parameter(torch.full((1, 2), 3.0))
    assert module(x).item() == 6.0


def test_a_bound_method_lifts_its_module():
    net = Net().eval()
    f = compiled(net.forward)
    f(torch.ones(1, 3)).sum().backward()
    assert net.fc.bias.grad.tolist() == [1, 1]
