"""Jobs whose graph breaks, as their users report them; see recompiles.py for how a job is written."""

from __future__ import annotations

import logging
import random
import threading
import time
import zlib

import torch
from torch import nn

logger = logging.getLogger("training")


def print_in_forward(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        y = torch.relu(x)
        if not cured:
            print("mean", y.shape)  # here
        return y + 1

    forward(torch.randn(3))


class Logged(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.cured = cured

    def forward(self, x):
        y = self.linear(x)
        if not self.cured:
            logger.warning("activations of %s", tuple(y.shape))  # here
        return torch.relu(y)


def logging_in_forward(cured):
    torch.compile(Logged(cured), backend="aot_eager")(torch.randn(2, 4)).sum().backward()


def item_in_loop(cured):
    torch._dynamo.config.capture_scalar_outputs = cured

    @torch.compile(backend="aot_eager")
    def normalise(x):
        return x / x.sum().item()  # here

    for _ in range(3):
        normalise(torch.rand(4))


def checksum_in_forward(cured):
    payload = b"weights"
    known = zlib.crc32(payload)

    @torch.compile(backend="aot_eager")
    def forward(x):
        y = x * 2
        checksum = known if cured else zlib.crc32(payload)  # here
        return y + checksum % 7

    forward(torch.randn(3))


def branch_on_a_value(cured):
    @torch.compile(backend="aot_eager")
    def clip(x):
        y = x * 2
        if cured:
            return torch.where(y.sum() > 0, y, -y)
        if y.sum() > 0:  # here
            return y
        return -y

    clip(torch.rand(4))


def timer_in_forward(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        y = x @ x
        if not cured:
            forward.seconds = time.thread_time()  # here
        return y.sum()

    forward(torch.randn(4, 4))


@torch.compiler.disable
def gather_metrics(x):
    return x.mean()


def disabled_helper(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        y = torch.tanh(x)
        if not cured:
            gather_metrics(y)  # here
        return y * 2

    y = forward(torch.randn(4))
    gather_metrics(y)


def boolean_mask(cured):
    @torch.compile(backend="aot_eager")
    def positive_mean(x):
        if cured:
            keep = x > 0
            return torch.where(keep, x, 0).sum() / keep.sum()
        return x[x > 0].mean()  # here

    positive_mean(torch.randn(16))


def break_in_a_loop(cured):
    @torch.compile(backend="aot_eager")
    def refine(x):
        for step in range(4):
            x = torch.sin(x)
            if not cured:
                print("step", step)  # here
        return x

    refine(torch.randn(3))


def stochastic_depth(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        if cured:
            return x + torch.relu(x) * (torch.rand(()) > 0.5)
        generator = random.SystemRandom()  # here
        if generator.random() < 0.5:  # here
            return x
        return x + torch.relu(x)

    forward(torch.randn(3))


def backward_inside(cured):
    weight = torch.randn(4, requires_grad=True)

    @torch.compile(backend="aot_eager")
    def train(x):
        loss = (weight * x).sum()
        if not cured:
            loss.backward()  # here
        return loss

    loss = train(torch.randn(4))
    if cured:
        loss.backward()


def lock_around_cache(cured):
    lock = threading.Lock()

    @torch.compile(backend="aot_eager")
    def forward(x):
        y = torch.exp(x)
        if cured:
            return y + 1
        with lock:  # here
            return y + 1

    forward(torch.randn(3))


def tensor_to_list(cured):
    @torch.compile(backend="aot_eager")
    def split(x, lengths):
        sizes = lengths if cured else lengths.tolist()  # here
        return [part.sum() for part in torch.split(x, sizes)]

    lengths = torch.tensor([2, 3, 5])
    split(torch.randn(10), lengths.tolist() if cured else lengths)


def file_read(cured):
    def scale():
        with open(__file__) as file:  # here
            return float(len(file.readline()))

    known = scale()

    @torch.compile(backend="aot_eager")
    def forward(x):
        return torch.relu(x) * (known if cured else scale())  # here

    forward(torch.randn(3))
