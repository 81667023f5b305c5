"""Tables, graphs and texts of a recording say what was recorded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pandas as pd
import pytest

from aotviz.reading.recording import Compilation, Recording
from tests.recorder.strategies import MARKUP, small


@pytest.fixture
def compilation() -> Compilation:
    return Recording(small())[0]


def test_stage_times_are_in_milliseconds_and_nodes_are_counted(compilation: Compilation) -> None:
    stages = compilation.stages
    assert stages.stage.tolist() == ["trace", "partition"]
    assert stages.elapsed_ms.tolist() == [1.5, 0.5]
    assert stages.nodes_before.tolist() == [0, 4]
    assert stages.nodes_after.tolist() == [4, 6]


def test_saved_bytes_stay_integers_where_one_is_unknown(compilation: Compilation) -> None:
    assert compilation.saved_tensors.saved_bytes.dtype == "Int64"
    assert compilation.saved_tensors.saved_bytes.tolist() == [24]


def test_empty_tables_have_their_columns() -> None:
    data = small()
    data.compilations[0].saved_tensors.clear()
    data.compilations[0].inputs.clear()
    compilation = Recording(data)[0]
    assert "saved_bytes" in compilation.saved_tensors.columns
    assert compilation.inputs.mutates_data.dtype == bool
    assert compilation.saved_tensors.saved_bytes.sum() == 0


def test_nodes_have_users_symbolic_shapes_sources_and_identity(compilation: Compilation) -> None:
    nodes = compilation.graph("joint").nodes.set_index("name")
    assert nodes.users["x"] == ("cos", "sin")
    assert nodes.users["cos"] == ("sin", "output")
    assert nodes["shape"]["x"] == ("s0", 3)
    assert nodes.stride["x"] == (3, 1)
    assert nodes.source_line["cos"] == "model.py:3"
    assert nodes.source_code["cos"] == "return x.cos()"
    assert nodes.module_path["cos"] == "layers.0"
    assert nodes.module_type["cos"] == "Linear"
    assert nodes.descriptor["x"] == "the user's x"
    assert nodes.is_backward.tolist() == [False, False, True, False]
    assert nodes.args["sin"] == (
        "x, torch.int64, out=None, where={'at': slice(0, None, 2)}, more=[1, 2.5, 'text', cos]"
    )
    forward = compilation.graph("forward").nodes.set_index("name")
    assert forward.value_id["cos"] == nodes.value_id["cos"]


def test_the_code_reads_like_python(compilation: Compilation) -> None:
    assert str(compilation.graph("forward")) == textwrap.dedent("""\
        def forward(
            x: f32[s0, 3],  # the user's x
        ):
            # model.py:3 in f: return x.cos()
            cos: f32[s0, 3] = aten.cos.default(x)
            return (
                cos,  # result
            )""")


def test_a_role_gives_the_last_graph_and_a_stage_the_graph_it_left(compilation: Compilation) -> None:
    assert compilation.graph("forward").stage == "partition"
    assert compilation.graph("trace").role == "joint"
    with pytest.raises(LookupError, match=r"stage 'partition' has 2 graphs; choose graph\('forward', stage='part"):
        compilation.graph("partition")
    with pytest.raises(LookupError, match=r"no graph 'inference'. Roles: \['backward', 'forward', 'joint'\]"):
        compilation.graph("inference")


def test_a_diff_follows_values_not_names(compilation: Compilation) -> None:
    rows = compilation.diff("trace", "partition")
    assert (rows.change == "added").sum() == 0
    assert rows[rows.change == "removed"].name_before.tolist() == ["sin"]
    kept = rows[rows.change == "kept"]
    assert set(kept[kept.role_after == "backward"].name_before) == {"x", "cos", "output"}
    back = compilation.diff("partition", "trace")
    assert back[back.change == "added"].name_after.tolist() == ["sin"]
    with pytest.raises(LookupError, match="no stage 'nope'"):
        compilation.diff("trace", "nope")


def test_the_terminal_table_is_readable() -> None:
    assert str(Recording(small())) == textwrap.dedent("""\
        Recording of 1 compilation (by aotviz 0)

        Compiled once, 2 ms. Nothing was compiled again, and no graph broke.

        [0] f (training), 2.0 ms in 2 stages

        stage       ms  nodes before  after  what changed
        ---------  ---  ------------  -----  ------------
        trace      1.5                    4  traced
        partition  0.5             4      6  cut

        input  dtype    shape    mutation           why
        -----  -------  -------  -----------------  -------------------
        x      float32  [s0, 3]  MUTATED_OUT_GRAPH  its data is written

        output  type            base  views       why
        ------  --------------  ----  ----------  ---
        output  alias_of_input  x     .view([3])

        1 value kept for the backward, 24 B; 0 donated""")


def test_names_with_markup_or_terminal_escapes_stay_text() -> None:
    for name in (MARKUP, "a\x1b[31mred\nnext"):
        recording = Recording(small(name=name, placeholder=name))
        assert "\x1b" not in str(recording)
        graph = recording[0].graph("joint")
        assert graph.nodes.name[0] == name
        assert "\x1b" not in graph.code
        drawing = graph.to_graphviz().source
        assert "\x1b" not in drawing
        assert "label=<" not in drawing
        assert str(recording).count("\n") == str(Recording(small())).count("\n")


def test_a_drawing_has_every_edge_and_a_box_for_each_module(compilation: Compilation) -> None:
    source = compilation.graph("joint").to_graphviz().source
    assert source.count("->") == 5
    assert 'label="layers.0"' in source


def test_a_recording_shows_text_where_there_is_no_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aotviz.widgets.workbench", None)
    recording = Recording(small())
    assert recording._repr_mimebundle_() == {"text/plain": str(recording)}


def test_indexing_iterating_and_counting_agree() -> None:
    recording = Recording(small())
    assert len(recording) == len(list(recording)) == len(recording.compilations) == 1
    assert recording[-1].name == "f"
    assert repr(recording) == "<aotviz Recording: 1 compilation>"
    assert isinstance(recording[0].evidence, pd.DataFrame)


def test_a_recording_opens_where_torch_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "r.aotviz"
    Recording(small()).save(path)
    script = """
        import sys

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("torch", "functorch"):
                    raise ImportError(f"{name} was imported")

        sys.meta_path.insert(0, NoTorch())
        import aotviz
        from aotviz.reading.recording import load

        recording = load(sys.argv[1])
        print(recording)
        for compilation in recording:
            for table in ("stages", "inputs", "outputs", "saved_tensors", "evidence"):
                print(getattr(compilation, table).to_string())
            print(compilation.graph("joint"), compilation.graph("joint").nodes.to_string())
            print(compilation.diff("trace", "partition"), compilation.wrapper.source)
            print(compilation.graph("joint").to_graphviz().source)
        recording.save(sys.argv[1] + ".again")
        try:
            from aotviz.widgets.static_files import FrontEndMissing
        except ImportError:
            sys.exit()
        recording._repr_mimebundle_()
        try:
            recording.to_html(sys.argv[1] + ".html")
        except FrontEndMissing:
            pass
        assert "torch" not in sys.modules
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], check=True, capture_output=True, timeout=120
    )
