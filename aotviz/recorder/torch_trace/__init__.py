"""Reads the logs that `TORCH_TRACE=folder python train.py` leaves, on any machine, without torch.

`logs.py` finds the files, `lines.py` cuts them into records, `assembler.py` puts the records where they belong with
the help of `rows.py`, `guards.py`, `timeline.py` and `stages.py`; `known.py` lists the record types. Long texts stay
in the files and are fetched when looked at (`texts.py`); `index.py` remembers a reading, so that the next is quick;
`reading.py` is the front door.
"""

# from aotviz.recorder.torch_trace.reading import read_trace

__all__ = ["read_trace"]
