"""Parse graphs that torch printed: texts in a log become the snapshots that views, tables and diffs use.

`printed_graphs.py` splits a text into graphs and lines; `statements.py` parses one line with `ast`;
`printed_types.py` parses the annotations. No part of a text is ever run.
"""
