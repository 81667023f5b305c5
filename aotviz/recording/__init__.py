"""The data of a recording: its wire format, files, tables, graphs and texts. Needs no torch."""
