"""What our site adds to Sphinx: code that names something public is a link; signatures as users meet them."""

from __future__ import annotations

import re
from typing import Any

from tools.public_names import Name, names
from tools.site.reference import docname, full_name, written_signature

# What numpydoc writes for an attribute that is a property; its page lists it here and nowhere else.
_PROPERTY = re.compile(r":obj:`([\w.]+)(?: <[^>]+>)?`")
_CODE = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)


def by_spelling(found: list[Name]) -> dict[str, str]:
    """The page of each spelling of a public name: `st.Lasso`, `stretto.Lasso`, and of classes `Lasso`."""
    pages: dict[str, str] = {}
    for name in reversed(found):
        key = name.title.rpartition(".")[2]
        if key[:1].isupper():
            pages[key] = docname(name)
    for name in found:
        pages[name.title] = pages[full_name(name)] = docname(name)
    return pages


def goal_of(code: str, pages: dict[str, str]) -> str | None:
    """The page of what a piece of code names, as `st.Cluster(nodes=4)` names `st.Cluster`; None where it names nothing.

    >>> goal_of("st.Cluster(nodes=4)", {"st.Cluster": "reference/st.Cluster"})
    'reference/st.Cluster'
    """
    match = _CODE.fullmatch(code)
    return pages.get(match["name"]) if match else None


def setup(app: Any) -> dict[str, Any]:
    """Register what we add."""
    from docutils import nodes
    from sphinx.util.nodes import make_refnode

    found = names()
    pages = by_spelling(found)
    signatures = {full_name(name): written_signature(name) for name in found}
    met = {full_name(name) for name in found if name.met}

    def within_a_link(node: Any) -> bool:
        while node.parent is not None:
            node = node.parent
            if isinstance(node, nodes.reference | nodes.title):
                return True
        return False

    def link_code(app: Any, tree: Any, page: str) -> None:
        for code in list(tree.findall(nodes.literal)):
            goal = goal_of(code.astext(), pages)
            if goal is not None and goal != page and not within_a_link(code):
                code.replace_self(make_refnode(app.builder, page, goal, None, code.deepcopy()))

    def signature(app: Any, what: str, name: str, obj: Any, options: Any, written: str, returns: str) -> Any:
        if name in met:
            return "", None  # users do not call these
        return (signatures[name], None) if signatures.get(name) else None

    def plain_attributes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = [_PROPERTY.sub(r"**\1**", line) for line in lines]

    app.connect("doctree-resolved", link_code)
    app.connect("autodoc-process-docstring", plain_attributes, priority=900)  # after numpydoc
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
