"""Reads the logs that `TORCH_TRACE=folder python train.py` leaves, on any machine, without torch.

`log_files.py` finds the files, `lines.py` cuts them into records, `assembler.py` puts the records where they belong
with the help of `rows.py`, `chromium_events.py` and `stages.py`; `known.py` lists the record types. Long texts stay in
the files and are fetched when looked at (`texts.py`); `index.py` remembers a reading, so that the next is quick;
`read_trace.py` is the way in.
"""
