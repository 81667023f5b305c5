"""The site of the documentation: `make docs` builds it from docs/ and notebooks/. A broken link is an error.

The pages are plain Markdown that a code host shows as well. So what only the site needs is here: the order of the pages
in the navigation, the page with all public names (reference.rst), which Sphinx writes from docstrings, the notebooks as
pages (notebook_pages.py), and what opens recordings: `open.html`, on which a reader drops a file, and a page for each
recording of the gallery, and of the examples of a page, which is a notebook as well (try_it.py). Each is a page as
`to_html` writes it, so the site works from a disk, too.

Sphinx, with MyST for Markdown and the theme furo: Sphinx has been kept for many years, reads docstrings itself, and
makes an error of each warning. MkDocs, the alternative, has had no release for a long time.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

import notebook_pages  # noqa: E402
import try_it  # noqa: E402

import aotviz  # noqa: E402

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
NAVIGATION = {  # pages of docs/, or with a slash from the root
    "Begin": "gallery",
    "Compile": "compiling subclasses programs refusals export cache security",
    "Look": "overview workbench recordings memory graph-view jupyterlab watching recompiles cures jobs cache-misses "
    "traces command-line",
    "The backward": "backward compiled-autograd",
    "Change and check": "stepping comparing-inputs verify teaching",
    "Notebooks": " ".join(f"/notebooks/{name}" for name in NOTEBOOKS),
    "Look up": "stages glossary site/reference parity releases next-release benchmarks /CHANGELOG",
    "Work on aotviz": "/CONTRIBUTING developing releasing adding-a-stage adding-a-rule adding-a-cure adding-a-view",
    "Design": "design/architecture design/system design/decisions design/measured design/compiled-autograd "
    "design/cache",
}

project = "aotviz"
copyright = "the authors of aotviz"
version = release = aotviz.__version__
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext", ".ipynb": "markdown"}
SOURCES = {"docs", "notebooks", "CHANGELOG.md", "CONTRIBUTING.md"}
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in SOURCES] + ["**/.ipynb_checkpoints"]
suppress_warnings = ["myst.header"]  # exercises of a notebook are headings of the third level below the first
myst_heading_anchors = 3  # as on a code host, a heading can be linked to
html_theme = "furo"
html_title = "aotviz"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/scroll-start.html",
        "sidebar/brand.html",
        "sidebar/search.html",
        "open.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_show_sphinx = False
html_copy_source = False
default_role = "code"  # as in Markdown
autodoc_typehints = "none"  # types would be in the signature; the descriptions say more
autodoc_member_order = "bysource"
python_display_short_literal_types = True


WITH_OPEN = {"docs/index", "docs/recordings"}
PICTURE = re.compile(r"^\[!\[[^\]]*\]\(images/([\w-]+)\.png\)\]\(.*\)$", re.MULTILINE)
TO_INDEX = """\
<!doctype html>
<meta charset="utf-8">
<title>aotviz</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
"""


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn notebooks into Markdown, and add to pages what only the site has."""
    if app.env.doc2path(name).suffix == ".ipynb":
        source[0] = notebook_pages.as_markdown(source[0], f"{Path(name).name}.ipynb")
    if name == root_doc:
        source[0] += "\n\n" + "\n\n".join(_navigation(part, pages) for part, pages in NAVIGATION.items()) + "\n"
    if name == "docs/gallery":
        source[0] = PICTURE.sub(_with_recording, source[0])
    if name in WITH_OPEN:
        source[0] = source[0].replace("`open.html`", '<a href="../open.html">open.html</a>')


def _navigation(part: str, pages: str) -> str:
    """Where Sphinx looks for the navigation. On a code host, the table of the front page does that."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {part}", "", *pages.split(), "```"])


def _with_recording(picture: re.Match[str]) -> str:
    from tests.ui.gallery import PICTURES  # with torch: only where the gallery is written

    address = PICTURES[picture[1]].address
    return f'{picture[0]}\n\n<a class="live" href="../recordings/{address}">Open this recording in the workbench</a>'


def write_recordings(app: Sphinx, _env: BuildEnvironment) -> None:
    """The pages that are not of Sphinx's, written while those of try_it.py run."""
    from aotviz.widgets.html import empty_page
    from tests.ui import gallery

    if app.builder.format == "html":
        site = Path(app.outdir)
        gallery.write(site / "recordings")
        (site / "open.html").write_text(empty_page(), encoding="utf-8", newline="\n")
        (site / "index.html").write_text(TO_INDEX, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
    app.connect("env-updated", write_recordings)
    try_it.TryIt(NAVIGATION["Work on aotviz"].split()).setup(app)
