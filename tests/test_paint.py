"""Values of the user's own as colours of the graph: what is kept, what is refused, and what is said about names."""

from __future__ import annotations

import base64
import gzip
import math
from pathlib import Path
from typing import Any

import msgspec
import nbformat
import pandas as pd
import pytest
import torch

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.recording.findings import Painting
from aotviz.widgets import parts
from aotviz.widgets.notebooks import STATES, WIDGET, WorkbenchHTML
from aotviz.widgets.workbench import KEPT, Workbench


@pytest.fixture(scope="module")
def trained() -> bytes:
    with aotviz.record() as recording:
        model = aotviz.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), backend="eager")
        model(torch.randn(2, 4)).sum().backward()
    return recording.to_bytes()


@pytest.fixture
def recording(trained: bytes) -> Recording:
    return Recording(files.unpack(trained))


def only(recording: Recording) -> Painting:
    (found,) = recording.data.paintings
    return found


def test_a_series_by_node_name_is_kept_in_a_saved_file(recording: Recording, tmp_path: Path) -> None:
    recording.paint(pd.Series({"tanh": 3, "addmm": 0.5, "mm": math.nan, "t": math.inf}, name="time"), unit="µs")
    recording.save(tmp_path / "painted.aotviz")
    found = aotviz.load(tmp_path / "painted.aotviz").paintings
    assert found[["label", "node", "unit"]].values.tolist() == [
        ["time", name, "µs"] for name in ("tanh", "addmm", "mm", "t")
    ]
    assert found.value.tolist()[:2] == [3, 0.5]
    assert math.isnan(found.value[2])
    assert found.value[3] == math.inf


def test_every_recording_of_a_live_function_has_the_painting() -> None:
    f = aotviz.compile(lambda x: x.sin().cos(), backend="eager")
    f(torch.ones(3))
    news: list[int] = []
    stop = f.recording.follow(lambda: news.append(1))
    f.recording.paint({"sin": 1.0}, "error")
    stop()
    assert f.recording.paintings.label.tolist() == ["error"]
    assert news == [1]


def test_a_second_painting_is_added_and_one_of_the_same_label_replaced(recording: Recording) -> None:
    recording.paint({"tanh": 1}, "time")
    recording.paint({"tanh": 2}, "memory")
    recording.paint({"tanh": 3}, "time")
    assert recording.paintings[["label", "value"]].values.tolist() == [["memory", 2], ["time", 3]]
    recording.unpaint("memory")
    with pytest.raises(LookupError, match=r"no painting 'memory'; there are 'time'"):
        recording.unpaint("memory")
    assert only(recording).label == "time"


def test_a_painted_recording_is_shown_painted(recording: Recording) -> None:
    assert "painting" not in recording.show("graph").bookmark
    recording.paint({"tanh": 1}, "time")
    recording.paint({"mm": 3}, "memory", stage="partition", graph="backward", node="mm")
    place = {"compilation": "0", "stage": "partition", "role": "backward", "node": "mm"}
    place |= {"painting": "memory", "paintings": "2"}
    assert recording.show("graph").bookmark == {"view": "graph", **place}
    assert recording.show().bookmark == {"view": "graph", **place}
    elsewhere = recording.show("graph", stage="joint").bookmark
    assert (elsewhere["stage"], elsewhere["painting"], "node" in elsewhere) == ("joint", "memory", False)
    code = {"view": "code", "compilation": "0", "painting": "memory", "paintings": "2"}
    assert recording.show("code").bookmark == code


def test_names_that_no_graph_has_are_kept_and_named_at_the_users_line(recording: Recording) -> None:
    with pytest.warns(UserWarning, match=r"2 names of the Series are in no graph of .*: 'Tanh', 7") as caught:
        recording.paint(pd.Series({"tanh": 1.0, "Tanh": 2.0, 7: 3.0}), "time")
    assert caught[0].filename == __file__
    assert recording.paintings.node.tolist() == ["tanh", "Tanh", "7"]


def test_only_unknown_names_are_an_error(recording: Recording) -> None:
    with pytest.raises(ValueError, match=r"no graph of .* has a node with these names: 'tanh_7'"):
        recording.paint({"tanh_7": 1.0}, "time")
    assert recording.paintings.empty


def test_a_stage_and_a_graph_are_arguments_or_levels_of_the_index(recording: Recording) -> None:
    names = recording[0].graph("backward", stage="partition").nodes.name
    recording.paint(pd.Series(1.0, index=names[:3]), "a", stage="partition", graph="backward")
    assert (only(recording).stage, only(recording).graph) == ("partition", "backward")
    index = pd.MultiIndex.from_product([["backward"], names[:3]])
    recording.paint(pd.Series(1.0, index=index), "a")
    assert recording.paintings[["stage", "graph"]].values.tolist() == [["", "backward"]] * 3
    index = pd.MultiIndex.from_tuples([(names[0], "partition")], names=["node", "stage"])
    recording.paint(pd.Series([1.0], index=index), "a")
    assert recording.paintings[["stage", "graph", "node"]].values.tolist() == [["partition", "", names[0]]]
    with pytest.raises(LookupError, match=r"no stage 'partitoin' with a graph: there are 'dynamo', "):
        recording.paint({"tanh": 1.0}, "a", stage="partitoin")
    with pytest.raises(TypeError, match="leave one of them out"):
        recording.paint(pd.Series([1.0], index=index), "a", stage="trace")
    with pytest.raises(ValueError, match="name them 'stage', 'graph', 'node'"):
        recording.paint(pd.Series([1.0], index=pd.MultiIndex.from_tuples([("x", "tanh")])), "a")


@pytest.mark.parametrize(
    ("values", "numbers", "texts", "unit"),
    [
        (pd.Series([1, None], dtype="Int64"), [1.0, math.nan], [], ""),
        (pd.Series([torch.tensor(0.5), 2], dtype=object), [0.5, 2.0], [], ""),
        (pd.to_timedelta(pd.Series([2, 3]), unit="ms"), [0.002, 0.003], [], "s"),
        (pd.Series([True, False]), [], ["True", "False"], ""),
        (pd.Series(["cuBLAS", None]), [], ["cuBLAS", "None"], ""),
        (pd.Series(["a", "b"], dtype="category"), [], ["a", "b"], ""),
        (pd.Series([1, "many"], dtype=object), [], ["1", "many"], ""),
    ],
)
def test_numbers_stay_numbers_and_the_rest_are_categories(
    recording: Recording, values: pd.Series[Any], numbers: list[float], texts: list[str], unit: str
) -> None:
    values.index = pd.Index(["tanh", "addmm"])
    recording.paint(values, "x")
    found = only(recording)
    assert found.numbers == pytest.approx(numbers, nan_ok=True)
    assert [text.replace("nan", "None") for text in found.texts] == texts
    assert found.unit == unit


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (pd.DataFrame({"time": [1.0]}, index=["tanh"]), r"expected a pandas Series .* got DataFrame; choose one of"),
        ([1.0], r"expected a pandas Series .* got list"),
        (pd.Series([1j], index=["tanh"]), r"series\.abs\(\)"),
        (pd.Series([1.0, 2.0], index=["tanh", "tanh"]), r"several values for one node: 'tanh'\. Combine .*groupby"),
        (pd.Series([], dtype=float), "empty"),
    ],
)
def test_what_cannot_be_painted_is_refused_in_words(recording: Recording, values: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        recording.paint(values, "x")
    assert recording.paintings.empty


def test_paintings_of_ranks_stay_with_their_ranks(recording: Recording, trained: bytes, tmp_path: Path) -> None:
    Recording(files.unpack(trained)).save(tmp_path / "0.aotviz")
    recording.paint({"tanh": 1.0}, "time")
    recording.save(tmp_path / "1.aotviz")
    both = aotviz.load([tmp_path / "0.aotviz", tmp_path / "1.aotviz"])
    assert both.paintings.compilation.tolist() == ["rank 1: 0"]


def test_a_painting_with_a_column_too_short_is_a_damaged_file(recording: Recording) -> None:
    recording.paint({"tanh": 1.0, "addmm": 2.0}, "time")
    broken = msgspec.structs.replace(only(recording), numbers=[1.0])
    with pytest.raises(files.Damage, match="painting time: a column"):
        files.unpack(files.pack(msgspec.structs.replace(recording.data, paintings=[broken])))


def kept(workbench: Workbench) -> list[Painting]:
    """The paintings in a widget's saved state."""
    packed = gzip.decompress(base64.b64decode(workbench.get_state()["painted"]))
    return msgspec.msgpack.decode(packed, type=parts.PaintingsPart).paintings


def test_a_workbench_paints_its_recording_and_the_notebook_keeps_it(recording: Recording) -> None:
    workbench = Workbench(recording, bookmark={"view": "code"})
    assert workbench.painted == ""
    workbench.paint(pd.Series({"tanh": 1.0}), "time", unit="µs")
    assert recording.data.paintings == kept(workbench)
    assert workbench.bookmark == {}
    recording.paint({"tanh": 2.0}, "memory")
    index = parts.pack(parts.index(recording))
    assert workbench._bytes_of(["index"]) == index
    assert [one.label for one in kept(workbench)] == ["time", "memory"]
    assert workbench._bytes_of(["unpaint", "0", "time"]) == b""
    assert [one.label for one in kept(workbench)] == ["memory"]


def test_nbconvert_puts_what_was_painted_after_the_output_into_its_page(recording: Recording) -> None:
    workbench = Workbench(recording)
    data, metadata = workbench._repr_mimebundle_()
    assert KEPT in data
    workbench.paint({"tanh": 1.0}, "time")
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    cell = nbformat.v4.new_code_cell(outputs=[output])
    model = data[WIDGET]["model_id"]
    state = {STATES: {"state": {model: {"state": workbench.get_state()}}}}
    page, _ = WorkbenchHTML().from_notebook_node(nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": state}))
    assert f'data-painted="{workbench.painted}"' in page
