"""A setting that prints the same in two runs and is of another type in the second, so that its hash differs."""

import sys

import torch
from torch._inductor import config


class Backends(str):
    """As a library for settings may read it from a file."""


def doubles(x):
    return x * 2 + 1


kind = str if sys.argv[1] == "first" else Backends
with config.patch(max_autotune_gemm_backends=kind("ATEN,CPP")):
    torch.compile(doubles)(torch.ones(3))
