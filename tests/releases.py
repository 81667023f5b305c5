"""What tests need of a release of torch."""

from __future__ import annotations

import pytest

from aotviz.torch_private import versions

takes_generators = pytest.mark.skipif(
    not versions.has("a trace takes generators"), reason="torch can't trace a generator"
)
