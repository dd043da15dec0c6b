"""The documentation site builds without a warning, and the built pages hold together."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_site_builds_without_warnings_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    """`tools.site` turns warnings into errors, and checks links, anchors, foreign hosts and the page of every name."""
    pytest.importorskip("torch")
    if find_spec("sphinx") is None:
        if os.environ.get("STRETTO_TEST_FULL"):
            pytest.fail("Sphinx is not installed: pip install -e '.[docs]'")
        pytest.skip("Sphinx")
    command = [sys.executable, "-m", "tools.site", str(tmp_path / "site"), str(tmp_path / "source")]
    environment = {**os.environ, "DOCS_GALLERY": "0", "DOCS_JOBS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert (tmp_path / "site" / "index.html").exists()
    assert "WARNING" not in done.stderr
    assert " pages, " in done.stdout
