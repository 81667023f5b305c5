"""Courses about what AOTAutograd does to a program: predict, run, see.

A puzzle is a program and a scene that calls it. The scene is played in eager and with the compiled program, so the
right answer to any question about it is computed, and never written down. A student predicts the values of
expressions. The notebook says which predictions are right and why, and then shows the view that answers the question.
docs/teaching.md says how to write and give a course.
"""

from aotviz.teaching.course import Course, Puzzle
from aotviz.teaching.shown import Prediction

__all__ = ["Course", "Prediction", "Puzzle"]
