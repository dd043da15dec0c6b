"""Build the site: `make docs`, or python -m tools.site [FOLDER [FOLDER OF THE SOURCE]].

DOCS_GALLERY=0 leaves the gallery's examples unrun, which is faster. Warnings of Sphinx are errors.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tools.site.gather import GALLERY, gather
from tools.site.places import ROOT

BUILD = ROOT / "build"


def gallery_sections() -> list[str]:
    """Folders of the gallery that have examples."""
    return sorted({path.parent.name for path in GALLERY.glob("*/plot_*.py")})


def build(output: Path, source: Path) -> int:
    """Gather and build. Returns the exit code of Sphinx."""
    from sphinx.cmd.build import main as sphinx

    gather(source, gallery=bool(gallery_sections()))
    places = ["-c", str(ROOT / "docs" / "site"), "-d", str(source.parent / "doctrees")]
    jobs = os.environ.get("DOCS_JOBS", "auto")
    strict = ["-E", "-a", "-q", "-n", "-W", "--keep-going"]  # everything anew, every warning is an error
    return int(sphinx(["-b", "html", *places, "-j", jobs, *strict, str(source), str(output)]))


def main(arguments: list[str]) -> int:
    """Build the site and check it. Returns the exit code."""
    from tools.site.check import problems, summary

    started = time.perf_counter()
    output = Path(arguments[0]).resolve() if arguments else BUILD / "site"
    code = build(output, Path(arguments[1]).resolve() if len(arguments) > 1 else BUILD / "site-source")
    wrong = problems(output)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{summary(output)}, in {time.perf_counter() - started:.0f} s")
    print(f"the site: {output / 'index.html'}")
    return code or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
