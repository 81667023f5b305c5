"""What to do about each cause: a registry of cures, one file for each area. tests/cures has a program for each."""
