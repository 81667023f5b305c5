"""Puzzles, as a student meets them: answers that are right, wrong, missing or of another kind; exams and papers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from aotviz.teaching import Course, Puzzle
from aotviz.teaching.shown import Outcome, Prediction
from aotviz.widgets.workbench import Workbench
from tests import course_notebooks
from tests.course_notebooks import Key, Ran

LESSON, EXAM, KEY = "02_aliasing_and_mutation.ipynb", "02_exam.ipynb", "02_exam_key.ipynb"
LOCKED = (
    (Path(__file__).resolve().parents[1] / "requirements.lock").read_text().partition("\ntorch==")[2].split("\n")[0]
)


def double(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x[:2]


def seen_outside(double: Any) -> dict[str, Any]:
    x = torch.ones(4)
    head = double(x)
    other = torch.zeros(2)
    head.zero_()
    return locals()


RIGHT = {"x": [0, 0, 2, 2], "same_storage('head')": {"x"}, "'x.copy_(' in wrapper": True}
WRONG = {"x": [2, 2, 2, 2], "same_storage('head')": set(), "'x.copy_(' in wrapper": False}


@pytest.fixture(scope="module")
def stage() -> Puzzle:
    return Course("test").puzzle("Seen outside", double, minutes=2)(seen_outside)


@pytest.fixture
def course() -> Course:
    return Course("test")


@pytest.fixture
def puzzle(course: Course, stage: Puzzle) -> Puzzle:
    """A puzzle of its own, that shares what was played with those of the other tests."""
    made = course.puzzle("Seen outside", double, minutes=2)(seen_outside)
    made._stage = stage._stage
    return made


def test_right_answers_are_right_and_the_recording_says_why(puzzle: Puzzle) -> None:
    said = puzzle.predict(RIGHT)
    assert set(said.outcomes.values()) == {Outcome.RIGHT}
    assert "stage metadata: `output[0]`: it is a view of an input" in said.reasons
    page = said._repr_html_()
    assert page.count("✓ right") == 3
    assert "<code>output[0]</code>: it is a view of an input" in page
    assert "answer [0, 0, 2, 2], compiled [0, 0, 2, 2]" in repr(said)


def test_wrong_answers_get_the_right_ones_and_the_reasons_and_no_traceback(puzzle: Puzzle) -> None:
    said = puzzle.predict(WRONG)
    assert set(said.outcomes.values()) == {Outcome.WRONG}
    assert [row.right for row in said.rows] == ["[0, 0, 2, 2]", "{'x'}", "True"]
    assert [row.compiled for row in said.rows] == ["[0, 0, 2, 2]", "{'x'}", ""]  # eager has no wrapper
    assert said.reasons
    assert said._repr_html_().count("✗ wrong") == 3


def test_an_unanswered_question_says_what_is_expected_and_not_what_is_right(puzzle: Puzzle) -> None:
    said = puzzle.predict(dict.fromkeys(RIGHT, ...))
    assert [row.note for row in said.rows] == [
        "a list of 4 numbers",
        "a set of names, such as {'a', 'b'}, or set()",
        "True or False",
    ]
    assert not said.reasons
    for text in (repr(said), said._repr_html_()):
        assert "[0, 0" not in text
        assert "compiled" not in text


def test_the_reasons_wait_until_all_questions_are_answered(puzzle: Puzzle) -> None:
    said = puzzle.predict({**RIGHT, "x": ...})
    assert list(said.outcomes.values()) == [Outcome.UNANSWERED, Outcome.RIGHT, Outcome.RIGHT]
    assert not said.reasons
    assert "[0, 0" not in said._repr_html_()


@pytest.mark.parametrize(
    ("question", "answer", "note"),
    [
        ("x", "zeros", "expected a list of 4 numbers, and got 'zeros'"),
        ("x", [0, 0], "expected a list of 4 numbers, and got [0, 0]"),
        ("x", 0, "expected a list of 4 numbers, and got 0"),
        ("x", [True] * 4, "expected a list of 4 numbers, and got [True, True, True, True]"),
        ("'x.copy_(' in wrapper", "yes", "expected True or False, and got 'yes'"),
        ("'x.copy_(' in wrapper", 1, "expected True or False, and got 1"),
        ("head.numel()", True, "expected a number, and got True"),
        ("same_storage('head')", 3, "expected a set of names, such as {'a', 'b'}, or set(), and got 3"),
        ("same_storage('head')", {"y"}, "there is no variable `y`; the variables are x, head, other"),
        ("x", double, "expected a list of 4 numbers, and got <function double at"),
    ],
)
def test_an_answer_of_another_kind_is_not_wrong_but_told_what_is_expected(
    puzzle: Puzzle, question: str, answer: Any, note: str
) -> None:
    (row,) = puzzle.predict({question: answer}).rows
    assert row.outcome is Outcome.UNCLEAR
    assert row.note.startswith(note)
    assert puzzle.tries.count == 0


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("x", torch.tensor([0.0, 0.0, 2.0, 2.0])),
        ("x", (0, 0, 2, 2)),
        ("x.shape", [4]),
        ("same_storage('head')", "x"),
        ("same_storage('head')", ["x"]),
        ("same_storage('other')", []),
        ("x.sin()[2].item()", 0.91),
        ("raised", None),
        ("by_eager.x[2].item() + by_aotviz.x[2].item()", 4),
    ],
)
def test_an_answer_may_be_written_in_several_ways(puzzle: Puzzle, question: str, answer: Any) -> None:
    assert puzzle.predict({question: answer}).outcomes == {question: Outcome.RIGHT}


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("y", "NameError: name 'y' is not defined. The variables are x, head, other"),
        ("x +", "SyntaxError"),
        ("same_storage('y')", "NameError: there is no tensor named 'y'; the tensors are x, head, other"),
        ("torch.sin", "TypeError: a builtin_function_or_method cannot be predicted"),
    ],
)
def test_a_question_that_has_no_value_says_so(puzzle: Puzzle, question: str, said: str) -> None:
    (row,) = puzzle.predict({question: 1}).rows
    assert row.outcome is Outcome.NO_QUESTION
    assert row.note.startswith(said)
    assert puzzle.counts()["questions"] == 0


def test_a_value_of_one_way_of_playing_is_not_compared_with_the_compiled_one(puzzle: Puzzle) -> None:
    (row,) = puzzle.predict({"by_eager.x": [0, 0, 2, 2]}).rows
    assert (row.right, row.compiled) == ("[0, 0, 2, 2]", "")


@pytest.mark.parametrize("predictions", [["x"], ..., {"x"}, None])
def test_predictions_that_are_no_dict_are_told_what_is_expected(puzzle: Puzzle, predictions: Any) -> None:
    assert "Expected a dict" in puzzle.predict(predictions)._repr_html_()
    assert puzzle.predict({1: 1}).outcomes == {"1": Outcome.RIGHT}
    assert puzzle.predict({None: ...}).outcomes == {"None": Outcome.UNANSWERED}


def test_a_variable_of_the_scene_may_have_a_name_that_a_question_can_use(course: Course) -> None:
    @course.puzzle("Names", double, minutes=1)
    def names(double: Any) -> dict[str, Any]:
        saved, wrapper = double(torch.ones(3)), 5
        return locals()

    (first, second) = names.predict({"saved": [2, 2], "wrapper": 5}).rows
    assert (first.right, first.compiled, second.right, second.compiled) == ("[2, 2]", "[2, 2]", "5", "5")


def test_texts_are_escaped(puzzle: Puzzle) -> None:
    page = puzzle.predict({"x < '<b>'": 1, "'<b>'": "<i>"})._repr_html_()
    assert "<b>'" not in page
    assert "<i>" not in page
    assert "&lt;i&gt;" in page


def test_a_view_waits_for_the_prediction(puzzle: Puzzle) -> None:
    waits = puzzle.see(view="aliasing", stage="metadata")
    assert isinstance(waits, Prediction)
    assert "Predict first" in waits._repr_html_()
    puzzle.predict({**RIGHT, "x": ...})
    assert isinstance(puzzle.see(view="aliasing"), Prediction)
    puzzle.predict(WRONG)
    shown = puzzle.see(view="aliasing", stage="metadata")
    assert isinstance(shown, Workbench)
    assert shown.bookmark == {"view": "aliasing", "stage": "metadata"}
    assert isinstance(puzzle.see(now=True), Workbench)


def test_progress_remembers_the_first_answers(course: Course, puzzle: Puzzle) -> None:
    def row() -> list[Any]:
        return course.progress().loc["Seen outside"].tolist()

    assert row() == [2, 0, 0, 0, 0, 0]
    puzzle.predict({**RIGHT, "x": ...})
    assert row() == [2, 3, 2, 2, 2, 1]
    puzzle.predict({**RIGHT, "x": [2, 2, 2, 2]})
    puzzle.predict(RIGHT)
    puzzle.predict(RIGHT)  # the cell is run again
    assert row() == [2, 3, 3, 3, 2, 3]
    course.puzzle("Seen outside", double, minutes=2)(seen_outside)  # and so is the cell of the program
    assert row() == [2, 3, 3, 3, 2, 3]
    assert course.progress().loc["all"].tolist() == [2, 3, 3, 3, 2, 3]


def test_the_key_is_computed(course: Course, puzzle: Puzzle) -> None:
    puzzle.predict(dict.fromkeys(RIGHT, ...))
    assert course.key().answer.tolist() == ["[0, 0, 2, 2]", "{'x'}", "True"]


def test_a_scene_that_raises_shows_its_variables(course: Course) -> None:
    @course.puzzle("A leaf", double, minutes=1)
    def a_leaf(double: Any) -> dict[str, Any]:
        leaf = torch.ones(2, requires_grad=True)
        double(leaf)
        return locals()

    said = a_leaf.predict({"raised": "RuntimeError", "leaf": [1, 1], "out": 1})
    assert list(said.outcomes.values()) == [Outcome.RIGHT, Outcome.RIGHT, Outcome.NO_QUESTION]


def test_a_scene_must_return_its_variables(course: Course) -> None:
    made = course.puzzle("Nothing", double, minutes=1)(lambda double: None)
    with pytest.raises(TypeError, match=r"must end in `return locals\(\)`"):
        made.predict({"x": 1})


def test_the_compiled_value_is_shown_where_it_differs(course: Course) -> None:
    seen: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            seen.append(1)
        return x.sin()

    @course.puzzle("Differs", program, minutes=1)
    def differs(program: Any) -> dict[str, Any]:
        seen.clear()
        program(torch.ones(2))
        count = len(seen)
        return locals()

    (row,) = differs.predict({"count": 1}).rows
    assert (row.outcome, row.right, row.compiled) == (Outcome.RIGHT, "1", "0")


def test_each_play_gets_a_module_as_it_was(course: Course) -> None:
    norm = torch.nn.BatchNorm1d(2, affine=False)

    @course.puzzle("Statistics", norm, minutes=1)
    def statistics(norm: Any) -> dict[str, Any]:
        norm(torch.ones(3, 2))
        mean = norm.running_mean
        return locals()

    said = statistics.predict({"mean": [0.1, 0.1]})
    assert said.rows[0].compiled == "[0.1, 0.1]"
    assert norm.running_mean.tolist() == [0, 0]


def test_playing_leaves_the_callers_random_state(course: Course) -> None:
    @course.puzzle("Random", torch.nn.Dropout(), minutes=1)
    def random(drop: Any) -> dict[str, Any]:
        out = drop(torch.ones(20))
        return locals()

    before = torch.random.get_rng_state()
    assert random.predict({"torch.equal(by_eager.out, by_aotviz.out)": True}).rows[0].outcome is Outcome.RIGHT
    assert torch.equal(before, torch.random.get_rng_state())


# --- exams ------------------------------------------------------------------------------------------------------


@pytest.fixture
def exam(stage: Puzzle) -> Puzzle:
    made = Course("exam", judged=False).puzzle("Seen outside", double, minutes=2)(seen_outside)
    made._stage = stage._stage
    return made


def test_an_exam_notes_answers_and_judges_none(exam: Puzzle) -> None:
    said = exam.predict({**WRONG, "x": RIGHT["x"]})
    assert set(said.outcomes.values()) == {Outcome.NOTED}
    assert not said.reasons
    assert not {"right", "wrong"} & set(said._repr_html_().replace(">", " ").replace("<", " ").split())
    assert isinstance(exam.see(view="aliasing"), Prediction)
    assert exam._course.progress().columns.tolist() == ["minutes", "questions", "answered"]
    assert exam.predict({"x": 3}).outcomes == {"x": Outcome.UNCLEAR}  # the form of an answer may be mended


def test_papers_are_marked_by_the_key(course: Course, puzzle: Puzzle, exam: Puzzle, tmp_path: Path) -> None:
    puzzle._course.name = "exam"
    puzzle.predict(dict.fromkeys(RIGHT, ...))
    assert len(course.mark()) == 0
    assert exam._course.hand_in(tmp_path / "none.json", ...).startswith("Nothing is handed in yet")
    assert not (tmp_path / "none.json").exists()
    exam.predict(RIGHT)
    assert exam._course.hand_in(tmp_path / "ada.json", "Ada").startswith("3 answers of Ada to 'exam'")
    exam.predict({**WRONG, "x": RIGHT["x"], "head.numel()": 2})  # a question that the key does not ask
    exam._course.hand_in(tmp_path / "bob.json", "Bob")
    exam.predict({"x": ...})
    exam._course.hand_in(tmp_path / "eve.json", "Eve")
    marks = course.mark(*sorted(tmp_path.glob("*.json")))
    assert marks["right"].to_dict() == {"Ada": 3, "Bob": 1, "Eve": 0}
    assert marks["of"].tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"course": "exam", "student": "x", "answers": [1]}',
        json.dumps({"course": "other", "student": "x", "answers": {}}),
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_paper_is_named(course: Course, tmp_path: Path, content: str) -> None:
    course.name = "exam"
    path = tmp_path / "paper.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"paper\.json"):
        course.mark(path)


def test_two_papers_of_one_student_are_both_marked(course: Course, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        course.hand_in(tmp_path / name, "Ada")
    assert course.mark(tmp_path / "a.json", tmp_path / "b.json").index.tolist() == ["Ada", "Ada"]


# --- the notebooks ----------------------------------------------------------------------------------------------


def wrong(right: Any) -> Any:
    """An answer of the same kind that is not right."""
    if isinstance(right, bool):
        return not right
    if isinstance(right, list):
        return [wrong(part) for part in right]
    if isinstance(right, set):
        return set() if right else {"x"}
    return right + 1


def asked(key: Key) -> Iterator[tuple[str, str]]:
    return ((puzzle, question) for puzzle, answers in key.items() for question in answers)


@pytest.fixture(scope="module")
def lesson_key() -> Key:
    return course_notebooks.key_of(LESSON)


@pytest.fixture(scope="module")
def lesson(lesson_key: Key) -> Ran:
    """The lesson as it stands, and then with all answers wrong, and with all of the folded answers."""
    return course_notebooks.ran(
        LESSON, {p: {q: wrong(a) for q, a in key.items()} for p, key in lesson_key.items()}, lesson_key
    )


def test_each_puzzle_has_a_question_a_prediction_a_folded_view_and_a_folded_answer(lesson_key: Key) -> None:
    assert {puzzle: list(answers) for puzzle, answers in lesson_key.items()} == course_notebooks.questions_of(LESSON)
    assert len(lesson_key) > 20
    views = [cell for cell in course_notebooks.cells(LESSON) if course_notebooks.VIEW.fullmatch(cell.source)]
    assert len(views) == len(lesson_key)
    assert all(cell.metadata.jupyter.source_hidden for cell in views)


def test_the_lesson_as_it_stands_asks_and_shows_no_answer(lesson: Ran) -> None:
    for puzzle, said in lesson.predicted.items():
        if puzzle != "example":
            assert set(said[0].outcomes.values()) == {Outcome.UNANSWERED}, puzzle
            assert isinstance(lesson.seen[puzzle][0], Prediction), puzzle


def test_the_lessons_wrong_answers_are_told_why(lesson: Ran) -> None:
    for puzzle, (_, said, _) in lesson.predicted.items():
        assert {outcome for question, outcome in said.outcomes.items() if is_known(question)} == {Outcome.WRONG}, puzzle
        assert said.reasons, puzzle


def test_the_lessons_folded_answers_are_right(lesson: Ran) -> None:
    for puzzle, (*_, said) in lesson.predicted.items():
        for question, outcome in said.outcomes.items():
            if is_known(question):
                assert outcome is Outcome.RIGHT, (puzzle, question)


def is_known(question: str) -> bool:
    """Whether the answer is the lesson's. Other releases of torch have other bugs."""
    return "by_torch" not in question or torch.__version__.startswith(LOCKED)


def test_each_view_of_the_lesson_is_of_a_stage_that_ran(lesson: Ran) -> None:
    for puzzle, (_, shown) in lesson.seen.items():
        assert isinstance(shown, Workbench), puzzle
        compilation = shown._recording[int(shown.bookmark.get("compilation", 0))]
        assert shown.bookmark["stage"] in compilation.stages.stage.tolist(), puzzle


def test_the_exam_is_marked_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = course_notebooks.ran(KEY)
    answers = {puzzle: key.scope[puzzle].tries.answers for puzzle in key.predicted}
    assert list(asked(answers)) == list(asked(course_notebooks.questions_of(EXAM)))  # type: ignore[arg-type]
    for puzzle, (said,) in key.predicted.items():
        for question, outcome in said.outcomes.items():
            if "by_torch" not in question or torch.__version__.startswith(LOCKED):
                assert outcome is Outcome.RIGHT, (puzzle, question)
    exam = course_notebooks.ran(EXAM, answers)
    for said in exam.predicted.values():
        assert [set(one.outcomes.values()) for one in said] == [{Outcome.UNANSWERED}, {Outcome.NOTED}]
    assert not list(tmp_path.iterdir())  # without a name nothing is written
    exam.scope["exam"].hand_in(tmp_path / "paper.json", "Ada")
    (mark,) = key.scope["key"].mark(tmp_path / "paper.json").to_dict("records")
    assert mark["right"] == mark["of"] == len(list(asked(answers)))


def test_the_key_has_the_programs_of_the_exam() -> None:
    programs = [
        [
            cell.source.replace("@exam.", "@key.")
            for cell in course_notebooks.cells(name)
            if cell.id.endswith("-program")
        ]
        for name in (EXAM, KEY)
    ]
    assert programs[0] == programs[1]


# --- the page for teachers --------------------------------------------------------------------------------------

PAGE = (course_notebooks.NOTEBOOKS.parent / "docs/teaching.md").read_text(encoding="utf-8")


def minutes_of(name: str) -> list[int]:
    programs = (cell.source for cell in course_notebooks.cells(name) if cell.id.endswith("-program"))
    return [int(found[1]) for program in programs if (found := re.search(r"minutes=(\d+)", program))]


def test_the_teachers_notes_are_of_the_puzzles_in_the_lesson() -> None:
    noted = re.findall(r"^\| (\d+) [^|]+ \| (\d+) \|", PAGE, re.MULTILINE)
    _, *minutes = minutes_of(LESSON)  # without the example
    assert [(int(number), int(time)) for number, time in noted] == list(enumerate(minutes, 1))


def test_the_page_counts_the_exam() -> None:
    questions = sum(map(len, course_notebooks.questions_of(EXAM).values()))
    assert f"takes 40 minutes and has {questions} questions" in PAGE
    assert sum(minutes_of(EXAM)) == sum(minutes_of(KEY)) <= 40


def test_the_example_of_the_page_prints_what_it_shows_and_each_name_of_its_table_can_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope: dict[str, Any] = {}
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    exec(example, scope)
    assert capsys.readouterr().out == shown
    named = "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))
    for question in re.findall(r"`([^`]+)`", named):
        scope["centred"]._stage.value_compiled(question)
