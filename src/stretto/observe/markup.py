"""Self-contained HTML files: assets put together under a content security policy, with text that cannot inject code.

Text from outside is escaped in HTML; in JSON the characters <, > and & are written as \\u003c and so on, so that no
word can end its block. The policy allows the scripts and the style of the file alone, by their hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return resources.files("stretto.observe").joinpath("assets", name).read_text(encoding="utf-8")


def policy(script: str, style: str, connect: str = "") -> str:
    """The content security policy of a file with one script and one style. connect: what the script may call."""
    allowed = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    return f"{allowed}; connect-src {connect}" if connect else allowed


def json_block(value: Any) -> str:
    """JSON that is inert inside a script element."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def fill(frame: str, parts: Mapping[str, str]) -> bytes:
    """A frame with `{{name}}` replaced by its parts, in UTF-8.

    One pass over the frame alone: what is put in is never searched for the names of other parts. Names read from a file
    of another encoding may hold halves of characters, which become question marks.

    >>> fill("<p>{{a}}</p>", {"a": "{{b}}"})
    b'<p>{{b}}</p>'
    """
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], frame)
    return text.encode("utf-8", "replace")


def escape(text: str) -> str:
    """Text for HTML."""
    return html.escape(text)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
