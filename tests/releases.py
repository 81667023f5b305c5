"""What tests need of a release of torch."""

from __future__ import annotations

import pytest
import torch

from aotviz.torch_private import versions

takes_generators = pytest.mark.skipif(
    not versions.has("a trace takes generators"), reason="torch can't trace a generator"
)
fails_at_a_hessian_under_vmap = pytest.mark.skipif(
    versions.has("a Hessian under vmap is traced"), reason="torch traces a Hessian under vmap"
)
has_the_pages_numbers = pytest.mark.skipif(
    not versions.SUPPORTED.get(versions.release(torch.__version__)), reason="the page has the numbers of CI's torch"
)
guards_requires_grad = pytest.mark.skipif(
    not versions.has("a parameter's requires_grad is guarded"), reason="Dynamo has one program for both"
)
