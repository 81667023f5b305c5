"""One file a section of docs/parity.md. A section is a module with these names:

    TITLE             its heading
    ABOUT             what is compared with what, and what was left out
    groups()          names of groups of cases, in a fixed order; cheap to list
    cases(group)      the group's cases (`tests.parity.cases.Case`), in a fixed order
    also(rows)        lines to add below the section's own, if it has more to say; may be left out

To add one, write its file and name it below.
"""

SECTIONS = (
    "op_dtypes",
    "modules",
    "higher_order",
    "autograd_functions",
    "transforms",
    "jagged",
    "dtensors",
    "models",
    "distributed",
)
