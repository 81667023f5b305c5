"""Answers in plain words, from a recording: why it recompiled, why the cache missed, what a word means."""
