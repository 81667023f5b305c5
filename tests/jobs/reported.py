"""Jobs that were added from later reports; see recompiles.py for how a job is written."""

from __future__ import annotations

import dataclasses
import time

import torch
import torch.nn.functional as F
from torch import nn


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:  # here
            x = F.relu(layer(x))  # here
        return x


def layers_frozen(cured):
    model = Stack()
    compiled = torch.compile(model, backend="aot_eager")
    if cured:
        model.layers[:2].requires_grad_(False)
    compiled(torch.randn(2, 4))
    model.layers[:2].requires_grad_(False)
    compiled(torch.randn(2, 4))


def converted_after_a_check(cured):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="aot_eager")
    if cured:
        model.to(torch.bfloat16)
    compiled(torch.randn(2, 4, dtype=model[0].weight.dtype))
    model.to(torch.bfloat16)
    compiled(torch.randn(2, 4, dtype=torch.bfloat16))  # here


def number_of_captions(cured):
    @torch.compile(backend="aot_eager")
    def loss(scores, captions):
        return scores.sum() / (captions if cured else len(captions))  # here

    for count in range(2, 8):
        captions = ["a photo of a cat"] * count
        loss(torch.randn(8), count if cured else captions)


def param_group_added(cured):
    body, head = nn.Linear(4, 4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    if cured:
        optimizer.add_param_group({"params": list(body.parameters())})

    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()

    for epoch in range(2):
        if epoch == 1 and not cured:
            optimizer.add_param_group({"params": list(body.parameters())})
        head(body(torch.randn(2, 4))).sum().backward()
        step()
        optimizer.zero_grad()


def masked_mean(cured):
    @torch.compile(backend="aot_eager")
    def loss(errors, valid):
        if cured:
            return (errors * valid).sum() / valid.sum()
        return errors[valid].mean()  # here

    loss(torch.randn(8), torch.rand(8) > 0.3)


class Rotary(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.max_seq_len_cached = 0
        if cured:
            self.extend(64)

    def extend(self, length):
        self.max_seq_len_cached = length
        angles = torch.outer(torch.arange(length).float(), torch.tensor([1.0, 0.1]))
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, x):
        if x.shape[0] > self.max_seq_len_cached:  # here
            self.extend(x.shape[0])
        return x * self.cos[: x.shape[0]] + x.flip(-1) * self.sin[: x.shape[0]]  # here


def rotary_cache_grows(cured):
    model = torch.compile(Rotary(cured), backend="aot_eager")
    for length in (8, 16, 24, 32, 40):
        model(torch.randn(length, 2))


class ReversedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength  # here
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


def gradient_reversal(cured):
    @torch.compile(backend="aot_eager", dynamic=False)
    def domain(x, strength):  # here
        return ReversedGradient.apply(x, strength).sum()  # here

    for step in range(5):
        strength = step / 10
        domain(torch.randn(3, requires_grad=True), torch.tensor(strength) if cured else strength).backward()


def loss_logged(cured):
    history = []

    @torch.compile(backend="aot_eager")
    def step(x, y):
        loss = F.mse_loss(x, y)
        history.append(loss.detach() if cured else loss.item())  # here
        return loss * 2

    step(torch.randn(3, requires_grad=True), torch.randn(3)).backward()


def autocast_dtype(cured):
    model = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return model(x)  # here

    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=torch.bfloat16 if cured else dtype):
            forward(torch.randn(2, 4))


def timed_inside(cured):
    spent = []

    @torch.compile(backend="aot_eager")
    def forward(x):
        if cured:
            return torch.relu(x) + 1
        start = time.perf_counter()  # here
        y = torch.relu(x)
        spent.append(time.perf_counter() - start)  # here
        return y + 1

    forward(torch.randn(3))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor


class Classifier(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.linear, self.cured = nn.Linear(4, 2), cured

    def forward(self, x):
        hidden = self.linear(x)
        if self.cured:
            return {"logits": hidden.relu(), "hidden": hidden}
        return Output(hidden.relu(), hidden)  # here


def export_returns_a_dataclass(cured):
    torch.export.export(Classifier(cured), (torch.randn(2, 4),))


def cond_returns_its_input(cured):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.clone() if cured else x, (x,))  # here

    forward(torch.randn(3))


def compiled_inside_ddp(cured):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    trained = nn.parallel.DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    for _ in range(2):
        trained(torch.randn(2, 4)).sum().backward()
    torch.distributed.destroy_process_group()
