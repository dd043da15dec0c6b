"""Settings of Sphinx for the documentation site; `make docs` gathers the source (tools/site) and builds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.site.__main__ import gallery_sections  # noqa: E402

import stretto  # noqa: E402

project = "Stretto"
author = "The Stretto contributors"
copyright = "The Stretto contributors"
version = release = stretto.__version__
html_title = "Stretto"
language = "en"
smartquotes = False  # quotes are mostly those of code

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "tools.site.extension",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["readme.md", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.zip"]
templates_path: list[str] = []

# Pages in Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Docstrings: `code` in single backticks, as the pages in Markdown write it
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
maximum_signature_line_length = 88
add_module_names = True
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
suppress_warnings: list[str] = []

# The gallery: examples run when the site is built; DOCS_GALLERY=0 shows their sources alone.
if gallery_sections():
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": [str(ROOT / "examples" / "gallery")],
        "gallery_dirs": ["gallery"],
        "filename_pattern": r"plot_",
        "ignore_pattern": r"(^|/)_[^/]*\.py$",  # what the examples of a section have in common
        "plot_gallery": "False" if os.environ.get("DOCS_GALLERY") == "0" else "True",
        "within_subsection_order": "FileNameSortKey",
        "backreferences_dir": "gallery/backreferences",
        "doc_module": ("stretto",),
        "reference_url": {"stretto": None},
        "download_all_examples": False,
        "remove_config_comments": True,
        "show_memory": False,
        "show_signature": False,
        "min_reported_time": 600,
        "write_computation_times": False,
        "abort_on_example_error": False,
        "first_notebook_cell": None,
        "parallel": False,
    }

# Looks
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["switcher.js"]
html_favicon = "_static/mark.svg"
html_baseurl = "https://stretto-ml.github.io/stretto/"
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "reference/index": ["sidebar-nav-bs"], "**": ["sidebar-nav-bs"]}
html_theme_options = {
    "logo": {"image_light": "_static/mark.svg", "image_dark": "_static/mark.svg", "text": "Stretto"},
    "github_url": "https://github.com/stretto-ml/stretto",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "collapse_navigation": True,
    "switcher": {"json_url": "_static/switcher.json", "version_match": f"{version}.dev"},
    "check_switcher": False,
    "navbar_start": ["navbar-logo"],
    "navbar_center": ["navbar-nav"],
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_center": [],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
