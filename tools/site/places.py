"""Where files of the repository are on the site.

place_of("docs/how-to/loops.md")       "how-to/loops.md"
place_of("bench/results/als.md")       "benchmarks/results/als.md"
place_of("src/stretto/entry.py")       None: the site links to the repository
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/stretto-ml/stretto"

# Single files, and folders where a page links to the folder itself.
NAMED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "reporting-vulnerabilities.md",
    "CHANGELOG.md": "changelog.md",
    "docs/benchmarks.md": "benchmarks/index.md",
    "docs": "index.md",
    "docs/how-to": "how-to/index.md",
    "docs/tutorials": "start.md",
    "docs/decisions": "decisions/index.md",
    "docs/reproductions": "reproductions/index.md",
    "docs/reference": "reference/index.md",
    "bench/results": "benchmarks/results.md",
    "reproductions/results": "reproductions/results.md",
    "examples": "examples/index.md",
}
# Folders, with what their files are called on the site. The first that fits.
FOLDERS = (
    ("docs/site/", ""),
    ("docs/reference/", "reference/"),
    ("docs/", ""),
    ("bench/results/", "benchmarks/results/"),
    ("reproductions/results/", "reproductions/results/"),
)
PAGES = (".md", ".png", ".svg", ".jpg")


def place_of(path: str) -> str | None:
    """Where a file or folder of the repository is on the site; None where the site has no page of it."""
    if path in NAMED:
        return NAMED[path]
    if path.startswith("examples/") and path.endswith(".py") and path.count("/") == 1:
        return path.removesuffix(".py") + ".md"
    for folder, place in FOLDERS:
        if path.startswith(folder) and path.endswith(PAGES):
            rest = path.removeprefix(folder)
            if folder.endswith("results/") and rest.endswith(".md") and "/" in rest:
                return None  # a part of a page of results
            if rest == "README.md" or rest.endswith("/README.md"):
                rest = rest.removesuffix("README.md") + "index.md"
            return place + rest
    return None


def address(path: str) -> str:
    """Where the repository shows a file or folder."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


def sources() -> list[str]:
    """Files of the repository that are pages or pictures of the site."""
    found = [name for name in NAMED if (ROOT / name).is_file()]
    for folder, _ in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            shown = (
                path.is_file()
                and place_of(name) is not None
                and not name.startswith(("docs/reference/", "docs/site/_"))
            )
            if shown and name not in found and not (folder == "docs/" and name.startswith("docs/site/")):
                found.append(name)
    return found
