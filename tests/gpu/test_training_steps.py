"""Training on a GPU by torch.compile with our backends, beside eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import aotviz

from . import DEVICE

BACKENDS = ("aotviz_eager", "aotviz")
CLOSE = {"rtol": 2e-3, "atol": 2e-4}  # kernels add in another order, and TF32 may be on


def convolutions():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 4)).to(DEVICE)


def attention():
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to(DEVICE)


def batches(module):
    shape = (3, 8, 8) if isinstance(module, nn.Sequential) else (6, 32)
    return [torch.randn(n, *shape, device=DEVICE) for n in (4, 3, 4)]


def trained(module, run, given, cast=False, scaler=None):
    """The losses, and the parameters and buffers at the end."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for k, x in enumerate(given):
        optimizer.param_groups[0]["lr"] = 0.02 / (k + 1)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=cast):
            loss = run(x).float().square().mean()
        scaled = scaler.scale(loss) if scaler else loss
        scaled.backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    return [*losses, *module.state_dict().values()]


@pytest.mark.parametrize("make", [convolutions, attention])
@pytest.mark.parametrize("backend", BACKENDS)
def test_three_steps_with_two_batch_sizes_are_eagers(backend, make):
    module = make()
    other, given = copy.deepcopy(module), batches(module)
    expected = trained(module, module, given)
    torch.testing.assert_close(trained(other, torch.compile(other, backend=backend), given), expected, **CLOSE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_around_a_compiled_model_gives_eagers_types_and_about_its_numbers(backend):
    module = attention()
    other, given = copy.deepcopy(module), batches(module)
    compiled = torch.compile(other, backend=backend)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert compiled(given[0]).dtype == module(given[0]).dtype
    expected = trained(module, module, given, cast=True)
    torch.testing.assert_close(trained(other, compiled, given, cast=True), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_inside_a_compiled_function_is_in_its_backward_too(backend):
    def fn(x, w):
        with torch.autocast(DEVICE, torch.bfloat16):
            return (x @ w).sin()

    x, w = torch.randn(8, 8, device=DEVICE), torch.randn(8, 8, device=DEVICE, requires_grad=True)
    results = []
    for run in (fn, torch.compile(fn, backend=backend)):
        out = run(x, w)
        (gradient,) = torch.autograd.grad(out.float().sum(), w)
        results.append((out.detach(), gradient))
    torch.testing.assert_close(results[1], results[0], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_scaler_steps_as_in_eager_on_a_gpu(backend):
    module = convolutions()
    other, given = copy.deepcopy(module), batches(module)
    expected = trained(module, module, given, scaler=torch.amp.GradScaler("cuda", init_scale=1024.0))
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    found = trained(other, torch.compile(other, backend=backend), given, scaler=scaler)
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_channels_last_comes_out_as_in_eager(backend):
    module = nn.Conv2d(3, 8, 3).to(DEVICE, memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8, device=DEVICE).to(memory_format=torch.channels_last)
    expected, found = module(x), torch.compile(module, backend=backend)(x)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_on_the_cpu_meets_tensors_of_the_device_and_gets_its_gradient(backend):
    def fn(x, scale, rate):
        return (x * scale).sin() * rate

    x = torch.randn(8, device=DEVICE)
    for rate in (0.5, 0.25):  # a Python float that changes
        results = []
        for run in (fn, torch.compile(fn, backend=backend)):
            scale = torch.tensor(1.5, requires_grad=True)
            out = run(x, scale, rate)
            out.sum().backward()
            assert scale.grad.device.type == "cpu"
            results.append((out.detach(), scale.grad))
        torch.testing.assert_close(results[1], results[0], **CLOSE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_that_do_not_block_give_what_was_copied_on_a_gpu(backend):
    def fn(x, w):
        there = x.to(DEVICE, non_blocking=True)
        return (there @ w).relu().to("cpu", non_blocking=True)

    compiled = torch.compile(fn, backend=backend)
    for seed in range(4):
        x = torch.randn(512, 512, generator=torch.Generator().manual_seed(seed)).pin_memory()
        w = torch.randn(512, 512, device=DEVICE, requires_grad=True)
        out, expected = compiled(x, w), fn(x, w)
        torch.cuda.synchronize()
        torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-1)
        gradients = [torch.autograd.grad(one.sum(), w)[0] for one in (out, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_to_inputs_and_views_are_eagers(backend):
    def fn(x, y):
        x[1:].mul_(2)
        y.t_()
        return x.view(2, 8)[0], x.sin() @ y

    results = []
    for run in (fn, torch.compile(fn, backend=backend)):
        x, y = (torch.arange(16.0, device=DEVICE).reshape(4, 4) + k for k in range(2))
        view, product = run(x, y)
        assert view._base is x or view.data_ptr() == x.data_ptr()
        results.append((x, y, view, product))
    torch.testing.assert_close(results[1], results[0], **CLOSE)


def test_the_recording_names_the_device(tmp_path):
    with aotviz.record() as recording:
        module = attention()
        torch.compile(module, backend="aotviz_eager")(batches(module)[0]).sum().backward()
    recording.save(tmp_path / "gpu.aotviz")
    (compilation,) = aotviz.load(tmp_path / "gpu.aotviz")
    assert set(compilation.inputs["device"]) == {str(torch.ones(1, device=DEVICE).device)}
