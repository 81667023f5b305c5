"""How many bytes the front end is, and a recording on its way to it: by widget, by page, by JupyterLab extension."""

from __future__ import annotations

import json

import pytest

from aotviz.widgets import parts, static_files
from aotviz.widgets.html import pack, to_html
from aotviz.widgets.workbench import BUNDLES, Workbench
from benchmarks import synthetic_graphs
from tests.ui.fixture import recording
from tests.ui.jupyter import LABEXTENSION


def test_what_each_widget_instance_carries_is_small() -> None:
    assert len(json.dumps(Workbench(recording()).get_state())) <= 60_000


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_that_is_sent_once_a_page_is_at_most_a_megabyte(name: str) -> None:
    assert len(static_files.read(f"{name}.gz")) <= 1_000_000


@pytest.mark.skipif(not LABEXTENSION.exists(), reason="the extension is not built here: npm run build:jupyterlab")
def test_jupyterlab_loads_little_until_a_recording_is_opened() -> None:
    sizes = {path.name.partition(".")[0]: path.stat().st_size for path in (LABEXTENSION / "static").iterdir()}
    assert sizes["remoteEntry"] + sizes["plugins"] <= 60_000


@pytest.mark.slow
def test_five_stages_of_20000_nodes_fit_in_two_megabytes_offline_and_are_sent_in_parts() -> None:
    large = synthetic_graphs.recording("five stages", 20_000, stages=5)
    data = large.data
    assert len(to_html(data).encode()) <= 2_000_000
    assert len(pack(data)) < 0.5 * len(large.to_bytes())
    assert len(parts.pack(parts.index(large))) < 1_000
    assert len(parts.pack(parts.graph(large, data.compilations[0].id, 4))) < 500_000
