"""The site of documents: `make docs` writes it to build/docs."""

from __future__ import annotations

import base64
import io
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "src"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from gallery import write_gallery  # noqa: E402 - found by the lines above
from matplotlib.figure import Figure  # noqa: E402
from reference import write_reference  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

from fallow.core.version import __version__  # noqa: E402

project = "Fallow"
author = "The Fallow authors"
copyright = "The Fallow authors"
release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
exclude_patterns = ["tutorials/README.rst", "**.ipynb"]
nitpicky = False
default_role = "code"  # `name` in docstrings is code

# -- Markdown
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4

# -- reference
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
FOREIGN = (  # scikit-learn's own methods, with links into its documents
    "score, set_fit_request, set_predict_request, set_predict_proba_request, set_score_request"
)
autodoc_default_options = {"members": True, "exclude-members": FOREIGN}
autosummary_generate = True
napoleon_google_docstring = True
napoleon_numpy_docstring = True
write_reference(HERE / "reference_pages")

# -- a page for each strategy
write_gallery(HERE / "gallery_pages")

logging.getLogger("httpx").setLevel(logging.WARNING)  # every request of a tutorial

# -- tutorials: Python files that are run, and can be downloaded as notebooks
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "tutorials_run",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "show_memory": False,
    "write_computation_times": False,  # its pages load scripts from elsewhere
    "plot_gallery": os.environ.get("FALLOW_DOCS_RUN", "1") == "1",
}


def show_figure(figure: Figure) -> str:
    """Return a figure that a tutorial displays as HTML."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150, bbox_inches="tight")
    image = base64.b64encode(content.getvalue()).decode()
    return f'<img alt="Figure of this code block" src="data:image/png;base64,{image}">'


Figure._repr_html_ = show_figure

# -- docstrings: |x| is a norm and (n, *shape) a shape, no mark-up
CODE = re.compile(r"(``.*?``|`.*?`)")
SHAPE = re.compile(r"(?<=[(,])(\s?)\*(?=\w+\))")


def escape_marks(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Let bars, and stars of shapes, stand for themselves, but in code and in examples."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = CODE.split(line)
        for i in range(0, len(parts), 2):  # between pieces of code
            text = parts[i].replace("|", r"\|")
            parts[i] = SHAPE.sub(r"\1\\*", text)
        lines[number] = "".join(parts)


OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>[^)]+)\)")


def name_files(app: Sphinx, page: str, text: list[str]) -> None:
    """Files of the repository that are no pages are named where Markdown links to them."""
    here = HERE / page

    def name(link: re.Match[str]) -> str:
        target = (here.parent / link[0].partition("](")[2].rstrip(")")).resolve()
        if target.is_relative_to(HERE):
            return link[0]
        return f"{link['text']} (`{link['path']}`)"

    text[0] = OUTSIDE.sub(name, text[0])


def leave_out_sidebar(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    """Show no sidebar beside source code, which is in no table of contents."""
    if page.startswith("_modules/"):
        context.pop("toctree", None)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("html-page-context", leave_out_sidebar, priority=100)
    app.connect("source-read", name_files)
    app.connect("autodoc-process-docstring", escape_marks)


# -- pages
html_theme = "furo"
html_title = "Fallow"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
