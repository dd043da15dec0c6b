"""The order of pages: by section, groups of pages with a caption.

A page that no group names is listed where its folder has "/*" ("/**": and its subfolders), so a new page appears.
"""

from __future__ import annotations

# What the header calls a page whose title is longer.
SHORT = {
    "gallery": "Examples",
    "gallery/index": "Gallery",
    "benchmarks/index": "Benchmarks",
    "reproductions/index": "Papers",
}
# Page: groups of a caption, which may be empty, and pages.
CONTENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "index": (
        ("", "start how-to/index reference/index gallery concepts benchmarks/index reproductions/index develop"),
    ),
    "start": (
        ("First steps", "tour how-to-choose"),
        ("Tutorials", "tutorials/estimators tutorials/loops tutorials/tables tutorials/programs tutorials/*"),
    ),
    "how-to/index": (
        ("Recommend", "how-to/recommendations how-to/evaluation how-to/serving how-to/factorization-machines"),
        ("Topics", "how-to/topic-models"),
        ("Linear models", "how-to/sparse-regression how-to/classification how-to/cocoa"),
        ("Your own algorithm", "how-to/loops loops-reference how-to/programs how-to/tables how-to/stages"),
        ("Parameters of tasks", "how-to/states how-to/replicated how-to/adaptive"),
        ("Data and runs", "how-to/data how-to/larger-than-memory how-to/train-and-resume how-to/threads"),
        ("Further", "how-to/watching how-to/simulate how-to/gpu-memory how-to/*"),
    ),
    "gallery": (("", "gallery/index examples/index"),),
    "concepts": (("", "consistency support cluster faults security architecture glossary *"),),
    "benchmarks/index": (("", "benchmarks/charts benchmarks/results"),),
    "benchmarks/results": (("", "benchmarks/results/**"),),
    "reproductions/index": (
        ("Scheduled updates", "reproductions/smpframe reproductions/lda reproductions/orion"),
        ("Communication", "reproductions/bosen reproductions/alt"),
        ("Memory and width", "reproductions/tensorflowmem reproductions/flexps"),
        ("More", "reproductions/* reproductions/results"),
    ),
    "reproductions/results": (("", "reproductions/results/**"),),
    "develop": (("", "contributing/index decisions/index status changelog reporting-vulnerabilities"),),
    "contributing/index": (("", "contributing/*"),),
    "decisions/index": (("", "decisions/*"),),
}


def toctrees(page: str, pages: set[str]) -> str:
    """The hidden tables of contents of a page; names that are not in `pages` are left out."""
    lines: list[str] = []
    for caption, listed in CONTENTS.get(page, ()):
        found = [name for one in listed.split() for name in _matching(one, pages)]
        if found:
            head = [f":caption: {caption}"] if caption else []
            lines += ["", "```{toctree}", ":hidden:", *head, "", *(_entry(name) for name in found), "```"]
    return "\n".join([*lines, ""]) if lines else ""


def _entry(name: str) -> str:
    return f"{SHORT[name]} </{name}>" if name in SHORT else f"/{name}"


def entries(page: str, pages: set[str]) -> list[str]:
    """The pages that a page lists, of all its groups."""
    return [name for _, listed in CONTENTS.get(page, ()) for one in listed.split() for name in _matching(one, pages)]


def _matching(entry: str, pages: set[str]) -> list[str]:
    if not entry.endswith("*"):
        return [entry] if entry in pages else []
    deep, folder = entry.endswith("**"), entry.rstrip("*")
    listed = {name for groups in CONTENTS.values() for _, names in groups for name in names.split()} | {"index"}
    found = [name for name in pages if name.startswith(folder) and (deep or "/" not in name[len(folder) :])]
    return sorted((name for name in found if name not in listed), reverse=folder == "decisions/")
