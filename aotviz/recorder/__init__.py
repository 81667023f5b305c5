"""Writes recordings: watches the pipeline and turns what the stages hand on into the events of `recording/`."""
