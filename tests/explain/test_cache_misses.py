"""Each cause of a miss in the corpus is named by the one part of the key that differs, from two processes' logs."""

from __future__ import annotations

import pytest

from tests.explain.logs import recording

LOGGED, GATHERED = "cache_detailed", "cache"  # with the parts of AOTAutograd's keys, and without

# function, what differs, before, after, as AOTAutograd's key says it where its parts are logged
CAUSES = [
    ("shape_differs", "the shape of", "5", "6"),
    ("stride_differs", "the stride of", "(3, 1)", "(1, 4)"),
    ("dtype_differs", "the dtype of", "float32", "float64"),
    ("config_differs", "the setting `torch._inductor.config.max_fusion_size`", "64", "32"),
    ("code_differs", "the traced code", "mul = relu * 7", "mul = relu * 8"),
    ("grad_differs", "the requires_grad of", "False", "True"),
]


def lookups(kind: str, cache: str):
    first, second = recording(f"{kind}_first"), recording(f"{kind}_second")
    table = second.cache_misses(first)
    return table[table.cache == cache].set_index("function")


@pytest.mark.parametrize("kind", [LOGGED, GATHERED])
@pytest.mark.parametrize(("function", "subject", "before", "after"), CAUSES, ids=[cause[0] for cause in CAUSES])
def test_a_miss_names_the_one_thing_that_differs_from_the_run_before(kind, function, subject, before, after) -> None:
    found = lookups(kind, "aotautograd").loc[function]
    assert found.outcome == "miss"
    assert len(found.differs) == 1, found.differs
    assert found.differs[0].startswith(subject)
    assert before in found.before[0]
    assert after in found.after[0]
    assert found.nearest.startswith("earlier run, ")
    assert found.fix
    assert found.differs[0] in found.why


@pytest.mark.parametrize("kind", [LOGGED, GATHERED])
def test_a_number_in_the_code_is_shown_in_the_line_that_has_it(kind) -> None:
    told = recording(f"{kind}_second").explain(earlier=recording(f"{kind}_first"))
    point = next(point for point in told.points if "and is now `mul = relu * 8`" in point.text)
    assert "compared with 5/0 of the earlier run, the traced code" in point.text
    assert "relu" in point.code


@pytest.mark.parametrize(("function", "subject", "before", "after"), CAUSES[:4], ids=[cause[0] for cause in CAUSES[:4]])
def test_the_fx_graph_cache_misses_for_the_same_thing(function, subject, before, after) -> None:
    found = lookups(GATHERED, "fx").loc[function]
    assert len(found.differs) == 1
    assert found.differs[0].startswith(subject)
    assert before in found.before[0]
    assert after in found.after[0]


def test_a_hit_says_what_it_saved_and_that_it_hides_the_graphs() -> None:
    found = lookups(GATHERED, "aotautograd").loc["scale"]
    assert found.outcome == "hit"
    assert "saved" in found.why
    assert "are not in this log" in found.why
    assert "TORCHINDUCTOR_FORCE_DISABLE_CACHES" in found.fix
    assert found.seconds > 0


def test_a_bypass_says_why_in_words_and_as_torch_does() -> None:
    found = lookups(GATHERED, "aotautograd").loc["custom_function"]
    assert found.outcome == "bypass"
    assert "custom `torch.autograd.Function`" in found.why
    assert "Unsupported call_function target autograd_function_apply" in found.why
    assert "autograd_cache_allow_custom_autograd_functions" in found.fix


def test_programs_that_were_never_asked_for_are_not_compared_with_others() -> None:
    table = recording("cache_first").cache_misses()
    misses = table[table.outcome == "miss"]
    assert len(misses) == 18
    assert set(misses.nearest) == {""}
    assert all("contains no similar compilation before it" in why for why in misses.why)


def test_two_logs_read_as_one_are_compared_as_well() -> None:
    table = recording("cache_first", "cache_second").cache_misses()
    found = table[(table.function == "shape_differs") & (table.cache == "aotautograd") & (table.nearest != "")]
    assert len(found) == 1
    assert found.iloc[0].differs[0].startswith("the shape of")


def test_ranks_that_ask_for_one_key_at_once_are_told_so() -> None:
    table = recording("ranks").cache_misses()
    same = table[table.why.str.contains("with the same key that")]
    assert {"step"} == set(same.function)
    assert "TORCHINDUCTOR_CACHE_DIR" in same.iloc[0].fix


def test_a_rank_that_finds_what_another_compiled_hits() -> None:
    table = recording("ranks").cache_misses()
    assert set(table[(table.function == "alike") & (table["rank"] == 1)].outcome) == {"hit"}


def test_the_overview_counts_every_lookup() -> None:
    told = recording("cache_second").explain()
    assert any("custom `torch.autograd.Function`" in text for text in told.sentences)
    table = recording("cache_second").cache_misses()
    assert table.outcome.value_counts().to_dict() == {"miss": 12, "hit": 6, "bypass": 1}


def test_misses_that_follow_from_a_recompile_are_not_told_as_news() -> None:
    told = recording("training").explain()
    assert len(recording("training").cache_misses()) > 0
    assert not any("missed the" in text and "0/1" in text for text in told.sentences)
