"""Every cause of a recompile in the corpus is named: the value before and after, the guard's line, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotviz
from aotviz.explain import guard_failures
from tests import corpus
from tests.explain.logs import recording

TENSORS, VALUES, MODULES = "recompiles_tensors", "recompiles_values", "recompiles_modules"

# program, function, the text of the line whose guard failed ("" where no line makes it), subject, before, after, fix
CAUSES = [
    (TENSORS, "each_size_anew", "return x * 2", "x.shape[0]", "2", "3", "mark_dynamic(x, 0)"),
    (TENSORS, "size_becomes_dynamic", "if x.shape[0] > 6", "x.shape[0]", "4", "5", "mark_dynamic(x, 0)"),
    (TENSORS, "other_dtype", "return x * scale", "x.dtype", "float32", "float64", "x.to(torch.float32)"),
    (TENSORS, "other_rank", "return x.sum(-1)", "x.ndim", "1", "2", "reshape"),
    (TENSORS, "other_stride", "return x + 1", "x.stride(0)", "4", "1", "x.contiguous()"),
    (TENSORS, "requires_grad_or_not", "return weight * 4", "weight.requires_grad", "False", "True", "freeze"),
    (TENSORS, "grad_mode", "", "grad_mode", "on", "off", "torch.no_grad()"),
    (TENSORS, "device_moves", "return x + 6", "x.device", "cpu", "meta", "x.to('cpu')"),
    (TENSORS, "same_tensor_twice", "", "x, y", "in separate storages", "one tensor", "clone()"),
    (TENSORS, "many_batch_sizes", "return batch @ weight", "batch.shape[0]", "2", "3", "mark_dynamic(batch, 0)"),
    (VALUES, "step_counter", "if step % 2 == 0", "step", "0", "1", "torch.tensor(step)"),
    (VALUES, "learning_rate", "if rate > 0.015", "rate", "0.01", "0.02", "torch.tensor(rate)"),
    (VALUES, "reads_a_global", "return x / temperature", "temperature", "1.0", "2.0", "as an argument"),
    (VALUES, "reads_a_closure", "return x**power", "power", "2", "3", "torch.tensor(power)"),
    (VALUES, "mode_by_name", "return x.relu() if mode", "mode", "'relu'", "'tanh'", "a few values"),
    (VALUES, "dictionary", 'if "bias" in settings', "settings", "lacks 'bias'", "has 'bias'", "same keys"),
    (VALUES, "growing_list", "return sum(tensors)", "len(tensors)", "1", "2", "Stack the elements"),
    (VALUES, "takes_a_function", "return activation(x)", "activation", "one function", "another function", "once"),
    (VALUES, "maybe_none", "if mask is None", "mask", "None", "something", "optional"),
    (VALUES, "other_type", "return x + values[0]", "values", "list", "tuple", "list(values)"),
    (VALUES, "by_phase", "if phase is Phase.WARM_UP", "phase", "one object", "another object", "only for this object"),
    (VALUES, "by_attribute", "if settings.residual", "settings.residual", "True", "False", "each side"),
    (VALUES, "default_dtype", "", "default_dtype", "float32", "float64", "once"),
]


def first_of(program: str, function: str) -> dict[str, object]:
    table = recording(program).recompiles()
    return table[table.function == function].iloc[0].to_dict()


@pytest.mark.parametrize(
    ("program", "function", "code", "subject", "before", "after", "fix"), CAUSES, ids=[cause[1] for cause in CAUSES]
)
def test_a_cause_is_named_with_its_values_line_and_remedy(program, function, code, subject, before, after, fix) -> None:
    found = first_of(program, function)
    assert (found["subject"], found["before"], found["after"]) == (subject, before, after)
    assert fix in str(found["fix"])
    assert function in str(found["why"])
    assert found["seconds"] > 0
    if code:
        assert code in str(found["code"])
        assert (
            corpus.source(program).splitlines()[int(str(found["place"]).rpartition(":")[2]) - 1].strip()
            == found["code"]
        )
        assert str(found["place"]).startswith(f"corpus/{program}.py:")


@pytest.mark.parametrize(
    ("compilation", "subject", "before", "after"),
    [
        ("0/2", "self.index", "1", "2"),
        ("1/3", "self.calls", "2", "3"),
        ("2/1", "self.training", "True", "False"),
        ("2/2", "self.linear.weight.requires_grad", "True", "False"),
        ("2/3", "self.linear.bias", "a tensor", "None"),
    ],
)
def test_what_belongs_to_a_module_has_its_name_in_the_module(compilation, subject, before, after) -> None:
    table = recording(MODULES).recompiles().set_index("compilation")
    found = table.loc[compilation]
    assert (found.subject, found.before, found.after) == (subject, before, after)


def test_a_guard_from_a_librarys_line_is_led_back_to_the_users() -> None:
    found = recording("ranks").recompiles().iloc[0]
    assert found.code == "return model(x).relu().sum()"
    assert found.place == f"corpus/ranks.py:{corpus.line('ranks', found.code)}"


def test_a_range_that_a_branch_made_is_told_with_the_size_that_left_it() -> None:
    table = recording(TENSORS).recompiles().set_index("compilation")
    found = table.loc["1/2"]
    assert found.kind == "symbolic"
    assert found.before == "2 <= x.shape[0] <= 6"
    assert found.after == "7"
    assert found.place == f"corpus/{TENSORS}.py:{corpus.line(TENSORS, 'if x.shape[0] > 6')}"


def test_a_value_that_became_symbolic_is_said_to_need_no_further_program() -> None:
    assert "`step` is symbolic from now on" in str(first_of(VALUES, "step_counter")["why"])
    assert "symbolic" not in str(first_of(VALUES, "mode_by_name")["why"])


def test_of_twenty_recompiles_the_guard_that_matters_is_named_first() -> None:
    table = recording("recompile_limit").recompiles()
    assert len(table) == 20
    first = recording("recompile_limit").explain().points[0]
    assert first.text.startswith("`self.steps_done` caused 16 of the 20 recompiles")
    assert first.code == "self.steps_done += 1"
    assert first.place == f"corpus/recompile_limit.py:{corpus.line('recompile_limit', 'self.steps_done += 1')}"
    assert "in a tensor" in first.fix
    assert "0, 1, 2" in first.text


def test_the_limit_and_the_way_back_to_eager_are_called_out() -> None:
    log = recording("recompile_limit")
    table = log.recompiles().set_index("compilation")
    assert table.loc["0/16"].outcome == "limit"
    assert set(table.drop(index="0/16").outcome) == {"compiled"}
    for text in (table.loc["0/16"].why, log.explain().sentences[0], log.explain("0/16").sentences[0]):
        assert "limit of 16" in text
        assert "eager" in text


def test_recompiles_of_one_cause_are_counted_together() -> None:
    table = recording("recompile_limit").recompiles().set_index("compilation")
    assert table.loc["0/3"].same_cause == 16
    assert table.loc["1/4"].same_cause == 1


def test_the_cause_is_the_fact_that_most_programs_disagree_with() -> None:
    table = recording("recompile_limit").recompiles().set_index("compilation")
    assert table.loc["1/4"].subject == "grad_mode", "all three earlier programs were made with gradients"


def test_one_compilation_is_explained_with_the_others_that_did_not_fit_and_its_graph() -> None:
    told = recording("recompile_limit").explain("0/3")
    assert told.title == f"`forward [0/3]` (corpus/recompile_limit.py:{corpus.line('recompile_limit', 'def forward')})"
    assert "`self.steps_done` was 2 and is now 3" in told.sentences[0]
    assert "was 1 and is now 3 (0/1)" in told.sentences[1]
    assert "1 is changed" in told.sentences[2]
    assert "`float32[2, 4] with 0.03` and is `float32[2, 4] with 0.04`" in told.sentences[2]
    assert told.source.startswith("corpus/recompile_limit.py:17 ")
    assert "register_buffer" in told.fix


def test_a_first_compilation_is_said_to_be_one() -> None:
    assert (
        recording("recompile_limit")
        .explain("0/0")
        .sentences[0]
        .startswith("This is the first compilation of `forward`")
    )


def test_an_unknown_compilation_is_refused_with_those_there_are() -> None:
    with pytest.raises(LookupError, match=r"no compilation '7/7'.*0/0, 0/1"):
        recording("recompile_limit").explain("7/7")


def test_the_graphs_of_two_compilations_are_compared_node_by_node() -> None:
    table = recording("recompile_limit").graph_changes("1/0", "1/1").set_index("name")
    assert table.loc["l_batch_"].change == "changed"
    assert table.loc["l_batch_"].before == "float32[2, 4]"
    assert table.loc["l_batch_"].after.startswith("float32[s")
    assert (table.change == "added").sum() == 1, "the symbol of the size"
    assert table.loc["matmul"].place == f"corpus/recompile_limit.py:{corpus.line('recompile_limit', 'topk(top)')}"


def test_a_notebook_shows_what_differed_marked_and_escaped() -> None:
    shown = recording(VALUES).recompiles()._repr_html_()
    assert "background" in shown
    assert "<code>settings</code>" in shown
    assert "&quot;bias&quot; in settings" in shown
    assert "<script" not in shown


def test_a_log_without_recompiles_has_an_empty_table_with_its_columns() -> None:
    table = recording("errors").recompiles()
    assert len(table) == 0
    assert {"compilation", "why", "fix"} <= set(table.columns)
    assert "no rows" in table._repr_html_()


UNREADABLE = [
    ("", "unknown", "does not say"),
    ("no reason", "unknown", "does not say"),
    ("___check_obj_id(L['f'], 140574), type=<class 'function'>", "object", "`f` is a different object (function)"),
    ("CodeGuardAccessor: Not a function on L['f'].__code__", "object", "`f` is a different function than before"),
    ("___check_type_id(L['n'], 7), type=<class 'int'>", "type", "`n` was a int"),
    ("___check_type_id(L['n'], 7)", "type", "`n` has another type"),
    ("Duplicate tensor found where not expected! L['x'] should not alias", "same tensor", "the same tensor"),
    ("utils_device.CURRENT_DEVICE == None", "global state", "default device"),
    ("L['x'] is not None", "type", "`x` was something and is now None"),
    ("hasattr(L['x'], '_dynamo_dynamic_indices') == False", "marks", "mark_dynamic"),
    ("list(L['d'].keys()) == ['a', 'b']", "keys", "`d` had the keys ['a', 'b']"),
    (
        "Cache line invalidated because L['self'] got deallocated",
        "deleted",
        "together with `self`, on which it depends",
    ),
    ("BACKEND_MATCH failure: torch.compile detected different backend callables.", "backend", "another backend object"),
    ("Eq(Mod(L['x'].size()[0], 2), 0)", "symbolic", "Eq(Mod(x.shape[0], 2), 0)"),
    ("tensor 'x' size mismatch at index 0. expected 3, actual 1", "size", "size 3 and now has size 1"),
    ("something entirely new", "other", "`something entirely new` no longer holds"),
]


@pytest.mark.parametrize(("guard", "kind", "words"), UNREADABLE, ids=[case[0][:24] or "empty" for case in UNREADABLE])
def test_a_guard_that_nobody_can_read_is_put_into_words(guard, kind, words) -> None:
    failure = guard_failures.read(guard)
    assert failure.kind == kind
    assert words in failure.words
    told = "no cure is known" in failure.words or "TORCH_LOGS=recompiles_verbose" in failure.words
    assert bool(failure.fix) != told
    assert "___" not in failure.words


def test_sizes_zero_and_one_are_said_to_be_special() -> None:
    failure = guard_failures.read("tensor 'x' size mismatch at index 0. expected 3, actual 1")
    assert "Sizes 0 and 1 always get a program of their own" in failure.fix


def test_the_line_has_its_whole_path_where_torch_shares_the_root_folder_alone(tmp_path: Path) -> None:
    (log,) = corpus.folder("recompiles_values").iterdir()
    text = log.read_text()
    short = text.replace("# corpus/", "# rpus/")  # torch cuts the shared folders, "", and one letter more for a slash
    assert short != text
    (tmp_path / log.name).write_text(short)
    read = aotviz.read_trace(tmp_path, index=False)
    assert read.recompiles().place.tolist() == recording("recompiles_values").recompiles().place.tolist()
