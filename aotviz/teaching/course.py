"""A course: puzzles that a student predicts, runs and sees, and what became of them.

Nothing here stops a notebook that runs from top to bottom. An unanswered question says what is expected, a wrong answer
is explained, and a view that would give the answer away waits for the prediction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aotviz.frontends.compile import compile as aotviz_compile
from aotviz.teaching import papers
from aotviz.teaching.answers import Plain, agrees, expected, misunderstood, names_of, plain, shown
from aotviz.teaching.playing import Program, Scene, Stage
from aotviz.teaching.reasons import MEMORY, reasons
from aotviz.teaching.shown import JUDGED, Answered, Outcome, Prediction
from aotviz.widgets.workbench import Workbench

if TYPE_CHECKING:
    import pandas as pd


def compiled(program: Program) -> Any:
    """The program, compiled, with its graphs as they are. The cache would mark the stages of its recording."""
    return aotviz_compile(program, backend="eager", cache=False)


class Course:
    """Puzzles, in the order in which they are defined.

    Args:
        name: the name of the course, which is written on papers.
        judged: whether predictions are judged at once. In an exam they are only noted, and no view is shown.

    >>> import torch
    >>> from aotviz.teaching import Course
    >>> course = Course("views")
    >>> def double(x):
    ...     x.mul_(2)
    ...     return x[:2]
    >>> @course.puzzle("A write that is seen outside", double, minutes=2)
    ... def seen_outside(double):
    ...     x = torch.ones(4)
    ...     head = double(x)
    ...     return locals()
    >>> seen_outside.predict({"x": ..., "same_storage('head')": "x"})
    A write that is seen outside
      x: not answered yet: a list of 4 numbers
      same_storage('head') = {'x'}: ✓ right
        answer {'x'}, compiled {'x'}
    >>> course.progress().loc["A write that is seen outside", ["questions", "right"]].tolist()
    [2, 1]
    """

    def __init__(self, name: str, *, judged: bool = True) -> None:
        self.name = name
        self.judged = judged
        self.puzzles: dict[str, Puzzle] = {}  # by title

    def puzzle(
        self,
        title: str,
        program: Program,
        *,
        minutes: float,
        why: Collection[str] = MEMORY,
        compiler: Callable[[Program], Any] = compiled,
    ) -> Callable[[Scene], Puzzle]:
        """A decorator that makes a scene a puzzle about `program`, a function or a module.

        The scene gets the program, the original or the compiled one. It calls the program, and ends in
        `return locals()`. If a puzzle is defined again, its tries are kept.

        Args:
            title: its name in the table of progress and in papers.
            minutes: how long it should take.
            why: the stages whose reasons explain the answers.
            compiler: compiles the program, by `aotviz.compile(program, backend="eager")` if it is not given. What it
                returns has `.recording`.
        """

        def made(scene: Scene) -> Puzzle:
            tries = self.puzzles[title].tries if title in self.puzzles else Tries()
            stage = Stage(scene, program, compiler)
            self.puzzles[title] = puzzle = Puzzle(self, title, minutes, stage, why, tries)
            return puzzle

        return made

    def progress(self) -> pd.DataFrame:
        """One row for each puzzle, and their sum: minutes, questions, answered, right, right_at_first, tries.

        `right_at_first` counts the questions whose first answer was right. An exam shows only what was answered.
        """
        import pandas as pd

        columns = ["minutes", "questions", "answered", *(["right", "right_at_first", "tries"] if self.judged else [])]
        rows = [puzzle.counts() for puzzle in self.puzzles.values()]
        frame = pd.DataFrame(rows, index=list(self.puzzles), columns=columns)
        frame.loc["all"] = frame.sum()
        return frame.rename_axis("puzzle").convert_dtypes()

    def key(self) -> pd.DataFrame:
        """The right answers to all questions that were asked, computed by running the puzzles."""
        import pandas as pd

        rows = [
            (title, question, shown(puzzle.right(question)))
            for title, puzzle in self.puzzles.items()
            for question in puzzle.tries.asked
        ]
        return pd.DataFrame(rows, columns=["puzzle", "question", "answer"])

    def hand_in(self, path: str | os.PathLike[str], name: Any) -> str:
        """Write a paper: the latest answers, as JSON, with the student's name. Returns what was written, in words.

        Nothing is written if the name is `...`, which stands for "not yet".
        """
        if name is ...:
            return "Nothing is handed in yet. Replace the ... by your name, and run this cell again."
        given = {title: puzzle.tries.answers for title, puzzle in self.puzzles.items()}
        return papers.write(path, papers.Paper(self.name, str(name), given))

    def mark(self, *paths: str | os.PathLike[str]) -> pd.DataFrame:
        """One row for each paper, with the number of right answers to each puzzle, and their sum.

        The questions are those of this course, and not those of the papers.

        Raises ValueError for a file that is no paper of this course.
        """
        import pandas as pd

        handed_in = [papers.read(path, self.name) for path in paths]
        rows = [[puzzle.points(paper.of(title)) for title, puzzle in self.puzzles.items()] for paper in handed_in]
        frame = pd.DataFrame(rows, index=[paper.student for paper in handed_in], columns=list(self.puzzles), dtype=int)
        frame["right"] = frame.sum(axis=1)
        frame["of"] = sum(len(puzzle.tries.asked) for puzzle in self.puzzles.values())
        return frame.rename_axis("student")


@dataclass
class Tries:
    """What a student has predicted of a puzzle so far, by question."""

    asked: tuple[str, ...] = ()  # the questions
    answers: dict[str, Plain] = field(default_factory=dict)  # the latest answers
    right: dict[str, bool] = field(default_factory=dict)  # whether they are right
    first: dict[str, bool] = field(default_factory=dict)  # whether the first answers were right
    count: int = 0  # how often there were other answers than before

    def note(self, asked: tuple[str, ...], answers: dict[str, Plain], right: dict[str, bool]) -> None:
        self.count += bool(answers) and answers != self.answers
        self.asked, self.answers, self.right = asked, answers, right
        self.first = {**right, **self.first}


class Puzzle:
    """A scene with a program, and the questions that a student answers. `Course.puzzle` makes it."""

    def __init__(
        self, course: Course, title: str, minutes: float, stage: Stage, why: Collection[str], tries: Tries
    ) -> None:
        self.title = title
        self.minutes = minutes
        self.tries = tries
        self._course = course
        self._stage = stage
        self._why = why

    def predict(self, predictions: Mapping[str, Any]) -> Prediction:
        """Judge predictions: expressions over the variables of the scene, each with its predicted value.

        `...` stands for "not answered yet". An expression may also use:

        - `same_storage("x")`: the names of the other variables that are in the same storage as `x`;
        - `raised`: the name of the error that ended the scene, or None; `printed`: the lines that were printed;
        - of the compiled program: `wrapper` (its source), `graph_inputs` and `graph_outputs` (what they mean), `saved`
          (names), `stages`, `compilations` (how many), `recording`;
        - `by_eager.x`, `by_aotviz.x`, `by_torch.x`: a variable after the scene was played in one of these ways.

        Other values are those of eager. No answer raises an error.
        """
        if not isinstance(predictions, Mapping):
            return Prediction(self.title, (), hint="Expected a dict: each question, a text, with its answer.")
        rows, answers, right = [], {}, {}
        for question, answer in predictions.items():
            row = self._judged(str(question), answer)
            rows.append(row)
            if row.outcome in (*JUDGED, Outcome.NOTED):
                answers[row.question] = plain(answer)
                right[row.question] = row.outcome is Outcome.RIGHT
        self.tries.note(tuple(row.question for row in rows if row.outcome is not Outcome.NO_QUESTION), answers, right)
        complete = self._course.judged and len(answers) == len(rows)
        return Prediction(self.title, tuple(rows), tuple(reasons(self._stage.recording, self._why)) if complete else ())

    def see(self, *, now: bool = False, **bookmark: str) -> Workbench | Prediction:
        """The workbench at a bookmark, such as `view="aliasing", stage="metadata"`.

        It comes after a prediction, because it shows the answers, and never in an exam; `now=True` shows it at once.
        """
        if not now and not self._course.judged:
            return Prediction(self.title, (), hint="This is an exam. The key shows the answer.")
        if not now and not self.is_answered:
            return Prediction(self.title, (), hint="Predict first, then run this cell again: it shows the answer.")
        return Workbench(self._stage.recording, bookmark=bookmark)

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer to each question of the latest prediction."""
        return bool(self.tries.asked) and len(self.tries.answers) == len(self.tries.asked)

    def right(self, question: str) -> Plain:
        """The right answer to a question. Raises what the expression raises."""
        return plain(self._stage.value(question))

    def points(self, answers: Mapping[str, Any]) -> int:
        """How many of the questions that were asked here are answered rightly."""
        return sum(self._is_right(question, answers[question]) for question in self.tries.asked if question in answers)

    def _is_right(self, question: str, answer: Any) -> bool:
        right = self.right(question)
        return not misunderstood(answer, right, self._stage.tensor_names) and agrees(answer, right)

    def counts(self) -> dict[str, float]:
        """The row of the puzzle in `Course.progress`."""
        return {
            "minutes": self.minutes,
            "questions": len(self.tries.asked),
            "answered": len(self.tries.answers),
            "right": sum(self.tries.right.values()),
            "right_at_first": sum(self.tries.first.get(question, False) for question in self.tries.asked),
            "tries": self.tries.count,
        }

    def _judged(self, question: str, answer: Any) -> Answered:
        names = ", ".join(self._stage.names)  # the scene is played here: its mistakes are the teacher's, and raise
        try:
            right = self.right(question)
        except Exception as error:  # of the expression, which the student may have written
            said = f"{type(error).__name__}: {error}. The variables are {names}"
            return Answered(question, "", Outcome.NO_QUESTION, note=said)
        if answer is ...:
            return Answered(question, "", Outcome.UNANSWERED, note=expected(right))
        unclear = misunderstood(answer, right, self._stage.tensor_names)
        if unclear:
            return Answered(question, "", Outcome.UNCLEAR, note=unclear)
        given = names_of(plain(answer)) if isinstance(right, set) else plain(answer)
        if not self._course.judged:
            return Answered(question, shown(given), Outcome.NOTED)
        outcome = Outcome.RIGHT if agrees(answer, right) else Outcome.WRONG
        compiled = "" if self._stage.says_how(question) else self._compiled(question)
        return Answered(question, shown(given), outcome, shown(right), compiled)

    def _compiled(self, question: str) -> str:
        try:
            return shown(plain(self._stage.value_compiled(question)))
        except Exception as error:  # the scene took another way, so that a variable is missing
            return type(error).__name__
