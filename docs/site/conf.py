"""The site of the documentation: `make docs` builds it from the pages in docs/, strictly, so that a broken link fails.

The pages are plain Markdown that a code host shows as well. So what only the site needs is here: the order of the pages
in the navigation, and the page with all public names (reference.rst), which Sphinx writes from docstrings.

Sphinx, with MyST for Markdown and the theme furo: Sphinx has been kept for many years, reads docstrings itself, and
makes an error of each warning. MkDocs, the alternative, has had no release for a long time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent))

import aotviz  # noqa: E402

NAVIGATION = {
    "Begin": "gallery",
    "Compile": "compiling subclasses programs refusals export cache security",
    "Look": "overview workbench recordings memory graph-view jupyterlab watching recompiles cures jobs cache-misses "
    "traces command-line",
    "The backward": "backward compiled-autograd",
    "Change and check": "stepping comparing-inputs verify teaching",
    "Look up": "stages glossary site/reference parity releases benchmarks",
    "Work on aotviz": "developing adding-a-stage adding-a-rule adding-a-cure adding-a-view",
}

project = "aotviz"
copyright = "the authors of aotviz"
version = release = aotviz.__version__
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["images"]
myst_heading_anchors = 3  # as on a code host, a heading can be linked to
html_theme = "furo"
html_title = "aotviz"
html_show_sphinx = False
html_copy_source = False
default_role = "code"  # as in Markdown
autodoc_typehints = "none"  # types would be in the signature; the descriptions say more
autodoc_member_order = "bysource"
python_display_short_literal_types = True


def with_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add the pages to the front page, where Sphinx looks for the navigation. On a code host its table does that."""
    if name == root_doc:
        parts = (
            "\n".join(["```{toctree}", ":hidden:", f":caption: {part}", "", *pages.split(), "```"])
            for part, pages in NAVIGATION.items()
        )
        source[0] += "\n\n" + "\n\n".join(parts) + "\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_navigation)
