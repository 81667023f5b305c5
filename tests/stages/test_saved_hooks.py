"""saved hooks: pack at the end of the forward, unpack at the start of the backward, for the tensors that are chosen."""

from __future__ import annotations

import pytest
import torch
from torch._functorch import config
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from aotviz.torch_private.partitioners import default_partition
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)


class Pack(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.bfloat16), 7, x.shape[0]


class Unpack(torch.nn.Module):
    def forward(self, packed):
        return packed[0].to(torch.float32)


HOOKS = torch.fx.symbolic_trace(Pack()), torch.fx.symbolic_trace(Unpack())


def split(fn, *shapes, hooks=HOOKS, mode="all", **options):
    inputs = [torch.ones(shape, requires_grad=True) for shape in shapes]
    with config.patch(saved_tensors_hooks_filtering_mode=mode), saved_tensors_hooks(*hooks):
        return stage_alone("saved hooks", fn, *inputs, partition_fn=default_partition, backend="eager", **options)


def test_without_hooks_nothing_changes():
    fn, x = (lambda x: x.sin().exp().sum()), torch.ones(3, requires_grad=True)
    before, after = stage_alone("saved hooks", fn, x, partition_fn=default_partition, backend="eager")
    assert after.forward_module is before.forward_module
    assert after.saved == before.saved
    assert after.evidence == ()


def test_hooks_that_are_no_graphs_are_left_to_autograd():
    hooks = save_on_cpu()
    before, after = split(lambda x: x.sin().exp().sum(), (3,), hooks=(hooks.pack_hook, hooks.unpack_hook))
    assert after.backward_module is before.backward_module
    assert not any(saved.hook for saved in after.saved)


def test_pack_ends_the_forward_and_unpack_begins_the_backward():
    before, after = split(lambda x: x.sin().exp().sum(), (3,))
    casts = [t for t in targets(after.forward_module.graph) if t == "_to_copy"]
    assert len(casts) == len(before.saved)
    backward = targets(after.backward_module.graph)
    assert backward[: len(casts)] == casts
    assert all(saved.value.dtype is torch.bfloat16 for saved in after.saved)
    assert {saved.hook for saved in after.saved} == {f"packed from {saved.name}" for saved in before.saved}


def test_constants_are_written_into_the_backward_and_symbols_are_saved():
    _, after = split(lambda x: x.sin().sum(), (3,))
    assert [saved.is_symbol for saved in after.saved] == [False]
    assert "saved as" in evidence(after)["primals_1"]
    assert evidence(after)["primals_1"].endswith(", 7, 3")


@pytest.mark.parametrize(
    ("mode", "packed", "reason"),
    [
        ("all", {"primals_1", "primals_2", "detach"}, "packed by the saved tensor hooks (mode 'all')"),
        ("donated", {"detach"}, "not packed: it shares memory with an input, so packing would free nothing"),
    ],
)
def test_the_mode_decides_what_is_packed_with_a_reason(mode, packed, reason):
    before, after = split(lambda x, w: ((x * w).exp() * 2).sum(), (3,), (3,), mode=mode)
    assert {saved.hook.removeprefix("packed from ") for saved in after.saved if saved.hook} == packed
    reasons = [one.text for one in after.evidence if one.subject == "primals_1"]
    assert reasons[0] == reason
    assert len(before.saved) == 3


def test_an_unknown_mode_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="is 'some'; it can be 'donated', 'no_static' or 'all'"):
        split(lambda x: x.sin(), (3,), mode="some")


def test_an_unpack_hook_that_returns_another_tensor_is_refused():
    class Wrong(torch.nn.Module):
        def forward(self, packed):
            return packed[0]

    with pytest.raises(ValueError, match=r"primals_1.*torch.float32 of shape \(3,\); it returned torch.bfloat16"):
        split(lambda x: x.sin(), (3,), hooks=(HOOKS[0], torch.fx.symbolic_trace(Wrong())))
