"""Diagrams of pages as pictures: what Mermaid draws of the blocks that GitHub draws by itself.

python -m tools.site.diagrams mermaid.min.js      draw them, with Chromium

The pictures are in docs/images/diagrams, named by a hash of their source. A block without a picture is shown as text.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from tools.site.places import ROOT, sources

FOLDER = ROOT / "docs" / "images" / "diagrams"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_DRAW = """async source => {
  mermaid.initialize({startOnLoad: false, theme: "neutral", htmlLabels: false, fontFamily: "sans-serif",
                      themeVariables: {fontSize: "13px"},
                      flowchart: {htmlLabels: false, useMaxWidth: false, wrappingWidth: 260,
                                  nodeSpacing: 16, rankSpacing: 36, padding: 10}});
  return (await mermaid.render("diagram", source)).svg;
}"""


def picture(source: str) -> Path:
    """Where the picture of a diagram is."""
    return FOLDER / f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def blocks(text: str) -> list[str]:
    """The diagrams of a page."""
    return _BLOCK.findall(text)


def with_pictures(text: str) -> str:
    """A page with pictures in place of its diagrams."""

    def replaced(found: re.Match[str]) -> str:
        path = picture(found[1])
        if not path.exists():
            return f"```text\n{found[1]}```\n"
        alternative = "Boxes and arrows, as the text around describes them"
        box = '<div class="diagram" role="group" aria-label="Diagram" tabindex="0">'  # scrolls, by keys too
        return f"{box}\n\n![{alternative}](/images/diagrams/{path.name})\n\n</div>\n"

    return _BLOCK.sub(replaced, text)


def main(script: str) -> None:
    """Draw the diagrams of all pages, and delete the pictures of those that are gone."""
    from playwright.sync_api import sync_playwright

    diagrams = [one for name in sources() if name.endswith(".md") for one in blocks((ROOT / name).read_text("utf-8"))]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.add_script_tag(path=script)
        for source in diagrams:
            picture(source).write_text(page.evaluate(_DRAW, source) + "\n", encoding="utf-8")
        browser.close()
    kept = {picture(source) for source in diagrams}
    for path in FOLDER.glob("*.svg"):
        if path not in kept:
            path.unlink()
    print(f"{len(kept)} diagrams in {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1])
