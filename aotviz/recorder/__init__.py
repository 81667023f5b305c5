"""What is kept of a compilation, in two halves that meet in events.py.

The writing half (recorder, snapshot, records, summaries, naming) watches the pipeline and needs torch. The reading
half (recording, graphs, tables, diff, terminal, listing, dot, files) opens recordings where there is no torch.
"""
