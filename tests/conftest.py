"""How the tests are shared out to several processes (`make test`): a file stays together, but for long tables.

A file's tests share what is dear to set up, such as a built wheel, a browser or a JupyterLab server. The programs,
random programs and operators share nothing, and are most of the work: they go to whichever process is free.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

SPREAD = {"test_programs.py", "test_fuzz.py", "test_sweep_ops.py", "test_modules.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name not in SPREAD:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.fixture
def clean_dynamo() -> Iterator[None]:
    """A test from a Dynamo that knows no program, with a seed, which leaves none of its programs behind."""
    import torch  # most tests that read recordings do without

    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
