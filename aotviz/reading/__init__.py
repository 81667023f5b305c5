"""What a user holds: a `Recording`, which can be asked, shown and saved. Needs no torch."""
