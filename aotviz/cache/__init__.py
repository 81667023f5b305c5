"""The cache of compiled programs: a second process loads what the first one compiled (SYSTEM.md E5).

`key` says what a compilation depends on, `store` keeps entries, and `entry` says what an entry holds.
"""
