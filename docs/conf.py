"""The documentation site: python -m sphinx -W docs build/docs."""

from importlib import metadata

project = "trot"
author = "the trot developers"
release = metadata.version("trot")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]
html_theme = "furo"
html_title = f"trot {release}"

# Links to headings of other pages: environments.md#cuda-graphs.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autoclass_content = "both"
