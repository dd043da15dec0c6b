"""Write docs/reference/ from the docstrings of public names: `make reference`.

python -m tools.reference            write the pages
python -m tools.reference --check    say which pages are out of date, and write nothing
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.docstrings import Docstring, Item
from tools.public_names import SPACES, Name, Parameter, all_parameters, member_doc, member_parameters, members, names

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
# Page, its title, and the modules whose names it has; the first that fits.
PAGES = (
    ("memory", "GPU memory: `st.memory`", ("stretto.memory",)),
    ("schedules", "Schedules: `st.schedule`", ("stretto.schedule",)),
    ("errors", "Errors and warnings: `stretto.errors`", ("stretto.errors",)),
    ("evaluation", "Evaluation", ("stretto.metrics", "stretto.evaluation")),
    ("models", "Models", ("stretto.models",)),
    ("tables", "Parameter tables", ("stretto.tables", "stretto.store", "stretto.consistency", "stretto.comm")),
    ("simulation", "Simulated clusters and faults", ("stretto.runtime.simulated",)),
    ("tables", "Parameter tables", ("stretto.runtime.tables",)),
    ("runtimes", "Runtimes, sessions and checkpoints", ("stretto.runtime",)),
    ("watching", "Watching runs", ("stretto.observe",)),
    ("tasks", "Tasks and stages", ("stretto.tasks",)),
    ("data", "Data", ("stretto.data",)),
    ("loops", "Loops and states", ("stretto.loops", "stretto.state", "stretto.keyed")),
    ("programs", "Programs and plans", ("stretto.programs", "stretto.entry", "stretto.plan")),
)
ORDER = (
    *(
        "models",
        "evaluation",
        "data",
        "loops",
        "programs",
        "schedules",
        "tables",
        "tasks",
        "runtimes",
        "watching",
        "simulation",
        "memory",
    ),
    "errors",
)
NOTE = "<!-- Generated from docstrings by `make reference`. Edit the docstrings instead. -->"
_WIDE = 100  # characters of a signature that stays on one line


def pages() -> dict[str, str]:
    """By file name, the text of every page."""
    by_page: dict[str, list[Name]] = {page: [] for page in ORDER}
    for name in names():
        by_page[page_of(name)].append(name)
    titles = {page: title for page, title, _ in PAGES}
    texts = {f"{page}.md": _page(titles[page], by_page[page]) for page in ORDER}
    texts["README.md"] = _index(titles, by_page)
    return texts


def page_of(name: Name) -> str:
    for page, _, modules in PAGES:
        if any(name.module == module or name.module.startswith(f"{module}.") for module in modules):
            return page
    raise LookupError(f"no page of the reference has {name.title} of {name.module}; add the module to PAGES")


def _index(titles: dict[str, str], by_page: dict[str, list[Name]]) -> str:
    lines = ["# Reference", "", NOTE, "", "Every public name, with its parameters and an example. "
             "`st` stands for `import stretto as st`.", ""]  # fmt: skip
    for page in ORDER:
        lines += [f"## [{titles[page]}]({page}.md)", "", "| name | meaning |", "|---|---|"]
        lines += [
            f"| [`{name.title}`]({page}.md#{anchor(name.title)}) | {cell(name.doc.summary)} |"
            for name in by_page[page]
            if not name.met
        ]
        lines.append("")
    return "\n".join(lines)


def _page(title: str, found: list[Name]) -> str:
    lines = [f"# {title}", "", NOTE, ""]
    for name in found:
        if not name.met:
            lines += _entry(name)
    met = [name for name in found if name.met]
    if met:
        lines += ["# Classes that functions return or pass on", ""]
        for name in met:
            lines += _entry(name)
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: Name) -> Iterator[str]:
    yield f"## {name.title}"
    yield ""
    called = isinstance(name.value, type) or hasattr(name.value, "__code__")
    if called and not name.met:
        yield from ["```python", _signature(name.title, all_parameters(name)), "```", ""]
    yield from _body(name.doc)
    if isinstance(name.value, type):
        yield from _members(name)


def _members(name: Name) -> Iterator[str]:
    for key, member in members(name.value):
        if key in name.doc.names("Attributes"):
            continue
        doc = member_doc(member)
        if hasattr(member, "__code__"):
            yield from [f"### {name.title.rpartition('.')[2]}.{key}", ""]
            yield from ["```python", _signature(key, member_parameters(member)), "```", ""]
        else:
            yield from [f"### {name.title.rpartition('.')[2]}.{key} (property)", ""]
        yield from _body(doc)


def _body(doc: Docstring) -> Iterator[str]:
    yield doc.summary
    yield ""
    if doc.text:
        yield from [doc.text, ""]
    for section, text in doc.sections.items():
        if section in ("Parameters", "Attributes"):
            yield from [f"**{section}**", "", "| name | type | meaning |", "|---|---|---|"]
            yield from (f"| `{item.name}` | {cell(item.kind)} | {cell(item.text)} |" for item in doc.listed[section])
            yield ""
        elif section in doc.listed:
            yield from [f"**{section}**", "", *_listed(doc.listed[section]), ""]
        elif section == "Examples":
            yield from ["**Example**", "", *_example(text)]
        else:
            yield from [f"**{section}**", "", text, ""]


def _listed(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        kind = f"`{item.name}` : {item.kind}" if item.kind else f"`{item.name}`"
        yield f"- {kind}" + (f": {item.text}" if item.text else "")


def _example(text: str) -> Iterator[str]:
    """Paragraphs as they are, and what is typed at a prompt as code."""
    for block in text.split("\n\n"):
        code = block.lstrip().startswith(">>>")
        yield from ["```pycon", block, "```", ""] if code else [block, ""]


def _signature(title: str, parameters: list[Parameter]) -> str:
    inside = [parameter.written for parameter in parameters]
    line = f"{title}({', '.join(inside)})"
    return line if len(line) <= _WIDE else "\n".join([f"{title}(", *(f"    {one}," for one in inside), ")"])


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in "-_ ").replace(" ", "-")


def out_of_date() -> list[str]:
    """Names of pages that differ from what the docstrings give."""
    made = pages()
    known = {path.name for path in FOLDER.glob("*.md")}
    differ = [name for name, text in made.items() if name not in known or (FOLDER / name).read_text("utf-8") != text]
    return sorted([*differ, *(known - made.keys())])


def main(arguments: list[str]) -> int:
    """Write the pages, or check them. Returns the exit code."""
    stale = out_of_date()
    if "--check" in arguments:
        if stale:
            print(f"out of date: {', '.join(stale)}; run make reference")
        return int(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name in stale:
        if name in made:
            (FOLDER / name).write_text(made[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(made)} pages, {len(stale)} changed; {len(names())} entries of {len(SPACES)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
