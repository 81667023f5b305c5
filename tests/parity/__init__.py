"""`make parity` writes docs/parity.md: where aotviz, torch's own AOTAutograd and eager differ, case by case."""
