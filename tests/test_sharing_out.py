"""Several processes share the tests as conftest.py says, also with another pytest or pytest-xdist."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_the_tests_of_a_file_go_to_one_process(request: pytest.FixtureRequest) -> None:
    if request.config.getvalue("loadgroup"):
        assert request.node.nodeid.endswith("@test_sharing_out.py")
