"""Hooks that are registered after the first call: told where they are not called, and only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import aotviz
from aotviz.reading.recording import Recording


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.other(self.one(x))


def registered_late(net: nn.Module, of: nn.Module, backend: str = "aot_eager") -> tuple[bool, Recording]:
    """Whether a forward hook is called that is registered after the first call, and what a watch recorded."""
    torch._dynamo.reset()
    seen: list[object] = []
    model = torch.compile(net, backend=backend)
    with aotviz.watch() as recording:
        model(torch.ones(2, 3))

        def collect(module: nn.Module, args: object, output: object) -> None:
            seen.append(output)

        of.register_forward_hook(collect)
        model(torch.ones(2, 3))
    return bool(seen), recording


def broken(net: Net) -> nn.Module:
    net.other.forward = torch.compiler.disable(net.other.forward)  # type: ignore[method-assign]
    return net


def is_told(recording: Recording) -> bool:
    return "a forward hook of" in str(recording.explain())


def test_a_hook_of_a_layer_is_told_with_its_module_and_its_line() -> None:
    net = Net()
    called, recording = registered_late(net, net.other)
    assert not called
    headline = (
        "`collect`, a forward hook of `other` (`Linear`), is not called by what was compiled before it was registered."
    )
    assert recording.overview().headline == headline
    assert __file__ in recording.explain().source
    assert "Register them before the first call" in recording.explain().fix


def test_so_is_one_of_a_module_of_torchs_class() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    called, recording = registered_late(net, net[0])
    assert (called, is_told(recording)) == (False, True)


def test_a_hook_that_is_called_is_not_told() -> None:
    net = Net()
    for called, recording in (
        registered_late(net, net),
        registered_late(broken(other := Net()), other.other),
        registered_late(third := Net(), third.one, "aotviz"),
    ):
        assert (called, is_told(recording)) == (True, False)


def test_nor_is_one_where_torch_guards_on_hooks() -> None:
    net = Net()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        called, recording = registered_late(net, net.one)
    assert (called, is_told(recording)) == (True, False)


@pytest.mark.parametrize("again", [False, True])
def test_a_program_that_was_compiled_with_the_hook_calls_it(again: bool) -> None:
    net = Net()
    torch._dynamo.reset()
    model = torch.compile(net, backend="aot_eager")
    with aotviz.watch() as recording:
        model(torch.ones(2, 3))
        net.one.register_forward_hook(lambda module, args, output: output * 2)
        if again:
            torch.compiler.reset()
            model(torch.ones(2, 3))
    assert is_told(recording) is not again


def test_a_recompile_for_a_hook_has_the_line_that_calls_the_module() -> None:
    called, recording = registered_late(net := Net(), net.one, "aotviz_eager")
    assert called
    assert recording.recompiles().code.tolist() == ["return self.other(self.one(x))"]
    assert recording.recompiles().place.tolist() == [f"{__file__}:{Net.forward.__code__.co_firstlineno + 1}"]
