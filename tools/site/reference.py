"""Pages of the reference: one for each public name, and one with a table for each group of docs/reference.

The pages hold directives; autodoc and numpydoc write what stands there from the docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from tools import reference as markdown
from tools.public_names import OPTIONS, SPACES, Name, all_parameters, documentation, members, names

TITLES = {page: title for page, title, _ in markdown.PAGES}


def docname(name: Name) -> str:
    """The page of a public name, such as `reference/st.Lasso`."""
    return f"reference/{name.title}"


def full_name(name: Name) -> str:
    """A public name with the module in which users find it, such as `stretto.Lasso`."""
    if name.met:
        return name.title
    space, _, key = name.title.rpartition(".")
    return f"{SPACES[space]}.{key}"


def kind(name: Name) -> str:
    """What autodoc calls it: class, exception, function, or data."""
    if inspect.isclass(name.value):
        return "exception" if issubclass(name.value, BaseException) else "class"
    return "function" if inspect.isroutine(name.value) else "data"


def by_group() -> dict[str, list[Name]]:
    """The public names of each group, in the order of docs/reference."""
    found: dict[str, list[Name]] = {page: [] for page in markdown.ORDER}
    for name in names():
        found[markdown.page_of(name)].append(name)
    return found


def pages(gallery: bool) -> dict[str, str]:
    """By file name, the text of every page. gallery: whether examples of the gallery are listed."""
    groups = by_group()
    first: dict[int, Name] = {}
    for name in [name for space in groups.values() for name in space]:
        known = first.setdefault(id(name.value), name)
        if name.title.count(".") < known.title.count("."):
            first[id(name.value)] = name  # `st.SSP` before `st.tables.SSP`
    texts = {"reference/index.md": _index(groups)}
    for page, found in groups.items():
        texts[f"reference/{page}.md"] = _group(page, found)
        for name in found:
            texts[f"{docname(name)}.rst"] = _page(name, gallery, first[id(name.value)])
    return texts


def anchors() -> dict[tuple[str, str], str]:
    """Pages of names by anchors of docs/reference: "reference/st.Lasso.rst" for "stlasso" of "reference/models.md"."""
    found = {}
    for page, listed in by_group().items():
        for name in listed:
            found[f"reference/{page}.md", markdown.anchor(name.title)] = f"{docname(name)}.rst"
            if isinstance(name.value, type):
                for key, _ in members(name.value):
                    title = f"{name.title.rpartition('.')[2]}.{key}"
                    found[f"reference/{page}.md", markdown.anchor(title)] = f"{docname(name)}.rst"
    return found


def _index(groups: dict[str, list[Name]]) -> str:
    about = "Every public name, each with a page. `st` stands for `import stretto as st`. "
    lines = ["# Reference", "", f"{about}What is not listed here may change without notice.", ""]
    for page, found in groups.items():
        lines += [f"## [{TITLES[page]}]({page}.md)", "", *_table([name for name in found if not name.met]), ""]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *groups, "```", ""])


def _group(page: str, found: list[Name]) -> str:
    lines = [f"# {TITLES[page]}", "", *_table([name for name in found if not name.met]), ""]
    met = [name for name in found if name.met]
    if met:
        lines += ["## Classes that functions return or pass on", "", *_table(met), ""]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *(name.title for name in found), "```", ""])


def _table(found: list[Name]) -> Iterator[str]:
    yield from ["| name | meaning |", "|---|---|"]
    for name in found:
        yield f"| [`{shown(name)}`]({name.title}.rst) | {markdown.cell(name.doc.summary)} |"


def shown(name: Name) -> str:
    """How the name is written: `st.Lasso`; of a class that is met, its own name."""
    return name.title.rpartition(".")[2] if name.met else name.title


def _page(name: Name, gallery: bool, first: Name) -> str:
    """The page of a name. first: the name under which the same object is documented, often itself."""
    title, target, what = shown(name), full_name(name), kind(name)
    lines = [title, "=" * len(title), "", f".. currentmodule:: {target.rpartition('.')[0]}", ""]
    if first is not name:
        lines += _alias(name, first)
    elif what == "data":
        lines += _value(name, target)
    elif what == "function":
        lines += [f".. autofunction:: {target}", ""]
    else:
        lines += [f".. auto{what}:: {target}", "", *_members(name)]
    if gallery and not name.met:
        lines += [f".. minigallery:: {target}", "   :add-heading: Examples that use it", "   :heading-level: -", ""]
    return "\n".join(lines)


def _alias(name: Name, first: Name) -> Iterator[str]:
    """A second name of an object that has a page."""
    what = "function" if kind(name) == "function" else "class"
    inside = ", ".join(one.written for one in all_parameters(name))
    yield from [f".. py:{what}:: {full_name(name).rpartition('.')[2]}({inside})", "", f"   {name.doc.summary}", ""]
    yield from [f"   The same as `{first.title}`, whose page has parameters and an example.", ""]


def _members(name: Name) -> Iterator[str]:
    for key, member in members(name.value):
        if key not in name.doc.names("Attributes"):
            what = (
                "method" if inspect.isfunction(member) else "property" if isinstance(member, property) else "attribute"
            )
            yield f"   .. auto{what}:: {key}"
            yield ""


def _value(name: Name, target: str) -> Iterator[str]:
    """An object that is neither class nor function: its docstring, and the methods of its class."""
    key = target.rpartition(".")[2]
    called = inspect.signature(name.value) if callable(name.value) else None
    yield f".. py:function:: {key}{_plain(called)}" if called else f".. py:data:: {key}"
    yield ""
    text = re.sub(r"^Examples\n-+\n", "\n**Examples**\n\n", documentation(name.value, key), flags=re.MULTILINE)
    yield from (f"   {line}".rstrip() for line in text.splitlines())
    yield ""


def _plain(signature: inspect.Signature) -> str:
    """A signature without types, which the docstring has."""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def written_signature(name: Name) -> str | None:
    """The signature where Python's does not say what may be given: options of `st.run`; None elsewhere."""
    if name.title not in OPTIONS:
        return None
    return f"({', '.join(one.written for one in all_parameters(name))})"
