"""Graphs that torch printed, read back: texts of a log become the snapshots that every view, table and diff knows.

`graphs.py` takes a text apart into graphs and lines; `statements.py` reads one line by `ast`; `types.py` reads what
stands in an annotation. Nothing of a text is ever run, and none of it needs torch.
"""

from aotviz.recorder.printed.graphs import Printed, PrintedGraphs

__all__ = ["Printed", "PrintedGraphs"]
