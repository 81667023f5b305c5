"""Graphs that torch printed, read back: texts of a log become the snapshots that every view, table and diff knows.

`printed_graphs.py` takes a text apart into graphs and lines; `statements.py` reads one line by `ast`;
`printed_types.py` reads what stands in an annotation. Nothing of a text is ever run.
"""

from aotviz.logs.printed.printed_graphs import Printed, PrintedGraphs

__all__ = ["Printed", "PrintedGraphs"]
