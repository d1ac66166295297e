"""The site: `make docs` builds it from these pages, the docstrings and the examples, without a network."""

from __future__ import annotations

import os
from typing import Any

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx

import bridgemil

project, author = "bridgemil", "The bridgemil developers"
release = version = bridgemil.__version__
copyright = "2026, the bridgemil developers"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autosummary_generate = True
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request"}  # scikit-learn's own
autodoc_typehints = "none"  # the docstrings have the types
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1,
    "ignore_repr_types": r"matplotlib|list",  # axes and texts that a plotting call returns
    "plot_gallery": os.environ.get("GALLERY") != "parse",  # the tests parse the examples, `make docs` runs them
}
suppress_warnings = ["config.cache", "myst.header"]  # an included part begins below the first level

html_theme = "pydata_sphinx_theme"
html_title = "bridgemil"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "changelog": []}
html_math_renderer = "mathml"


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(
        f'<div class="equation">{latex2mathml.converter.convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Equations as MathML, which browsers draw themselves: the site works without a network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
