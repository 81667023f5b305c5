"""Running a program once under functionalisation, and reading off it what the stages need to know."""
