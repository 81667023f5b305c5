"""Sweeps: long comparisons with eager that a person starts (`make sweep-models`, …) and whose results are kept here.

A sweep saves what it found as `results/NAME.json`; `page.py` makes its section of docs/parity.md from that file.
"""
