"""A real program through the real pipeline: what the recording says of it is true, and survives a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.reading.recording import Recording, load
from aotviz.recorder import summaries


def boxed(graph, inputs):
    def call(args: list[torch.Tensor]) -> object:
        return graph.forward(*args)

    call._boxed_call = True
    return call


@pytest.fixture(scope="module")
def recording() -> Recording:
    """`scale` is read and then updated; one output is a view of an input; the backward runs later."""

    def step(x, weight, scale):
        y = torch.tanh(x @ weight) - scale
        with torch.no_grad():
            scale.mul_(0.5)
        return y.sum(), x[0]

    with aotviz.record() as recording:
        compiled = aotviz.aot_function(step, fw_compiler=boxed, bw_compiler=boxed)
        loss, _ = compiled(torch.randn(4, 3), torch.randn(3, 2, requires_grad=True), torch.ones(2))
        loss.backward()
    return recording


def test_every_stage_is_there_and_the_lazy_backward_is_late(recording: Recording) -> None:
    (compilation,) = recording.compilations
    stages = compilation.stages
    assert stages.stage.tolist()[0] == "flatten"
    assert {"trace", "partition", "lower", "link"} <= set(stages.stage)
    assert stages[stages.late].stage.tolist() == ["lower backward"]
    assert "given" not in set(stages.stage)
    assert stages.summary.str.len().min() > 0
    assert compilation.kind == "training"
    assert compilation.data.error is None


def test_mutations_and_aliases_are_named_as_the_user_names_them(recording: Recording) -> None:
    inputs = recording[0].inputs.set_index("name")
    assert inputs.mutates_data.to_dict() == {"x": False, "weight": False, "scale": True}
    assert inputs.under_no_grad["scale"]
    assert inputs.reason["scale"]
    outputs = recording[0].outputs
    assert outputs.output_type[1] == "alias_of_input"
    assert outputs.base[1] == "x"
    assert outputs.view_chain[1] == ("select(0, 0)",)


def test_saved_tensors_say_what_they_cost_and_why(recording: Recording) -> None:
    saved = recording[0].saved_tensors
    forward = recording[0].graph("forward").nodes.set_index("name")
    assert len(saved)
    for row in saved.itertuples():
        assert row.name in forward.index
        assert row.why
        assert row.saved_bytes == forward["shape"][row.name][0] * forward["shape"][row.name][1] * 4


def test_the_backward_reads_values_of_the_forward(recording: Recording) -> None:
    compilation = recording[0]
    forward, backward = compilation.graph("forward").nodes, compilation.graph("backward").nodes
    saved = backward[(backward.op == "placeholder") & backward.descriptor.str.startswith("saved")]
    assert len(saved)
    assert set(saved.value_id) <= set(forward.value_id)
    assert set(compilation.diff("trace", "partition").change) <= {"kept", "added"}


def test_nodes_stand_on_the_user_s_lines(recording: Recording) -> None:
    joint = recording[0].graph("joint").nodes
    made = joint[joint.op == "call_function"]
    assert made.source_line.str.contains("test_live.py:").all()
    assert made[made.is_backward].source_code.str.contains("tanh").any()
    assert joint[joint.op == "placeholder"].descriptor.tolist()[:3] == ["x", "weight", "scale"]


def test_the_wrapper_is_kept_with_its_notes(recording: Recording) -> None:
    wrapper = recording[0].wrapper
    assert wrapper is not None
    assert "def " in wrapper.source
    lines = len(wrapper.source.splitlines())
    assert wrapper.notes
    assert all(note.last <= lines for note in wrapper.notes)


def test_a_file_says_the_same_as_the_live_recording(recording: Recording, tmp_path: Path) -> None:
    recording.save(tmp_path / "r.aotviz")
    loaded = load(tmp_path / "r.aotviz")
    assert loaded.data == recording.data
    assert str(loaded) == str(recording)
    assert loaded[0].graph("joint").code == recording[0].graph("joint").code


def test_nothing_is_recorded_where_nobody_asks() -> None:
    compiled = aotviz.aot_function(lambda x: x + 1, fw_compiler=boxed, record=False)
    compiled(torch.ones(2))
    with pytest.raises(RuntimeError, match="record=False"):
        _ = compiled.recording


def written(graph, inputs):
    """A compiler whose results say what it wrote for them, as Inductor's do."""
    call = boxed(graph, inputs)
    call.source_code = f"# for {len(inputs)} inputs\n" + "x" * written.length
    return call


@pytest.mark.parametrize("length", [10, summaries.MOST_CODE])
def test_what_a_compiler_wrote_is_kept_with_the_stage_that_ran_it(length: int) -> None:
    written.length = length
    with aotviz.record() as recording:
        compiled = aotviz.aot_function(lambda x: x.sin(), fw_compiler=written, bw_compiler=written)
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    code = {stage.name: dict(stage.code) for stage in recording[0].data.stages if stage.name.startswith("lower")}
    assert code["lower"]["inductor forward"].startswith("# for 1 inputs\nxxx")
    assert code["lower backward"]["inductor backward"].startswith("# for 2 inputs\nxxx")
    assert ("more characters are not recorded" in code["lower"]["inductor forward"]) == (length > 10)
    assert len(code["lower"]["inductor forward"]) < summaries.MOST_CODE + 100


def test_what_inductor_wrote_is_kept() -> None:
    compiled = aotviz.compile(lambda x: x.sin() * 2, backend="inductor")
    compiled(torch.ones(3))
    code = {name: text for stage in compiled.recording[0].data.stages for name, text in stage.code.items()}
    assert "cpp_fused_mul_sin_0(" in code["inductor inference"]
