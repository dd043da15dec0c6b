"""`TopicBrowser`: the topic browser inside a notebook, and as a file."""

from __future__ import annotations

import html
import os
from pathlib import Path

from stretto.observe.topics import TopicView
from stretto.observe.topics_page import page, write_topics


class TopicBrowser:
    """The topic browser of a model: a notebook shows it below the cell, `save` writes it to a file.

    The page runs in a frame of its own without access to the notebook, and asks for nothing from the network.

    Attributes
    ----------
    view : TopicView
        What the page shows.
    height : int
        Height in a notebook, in pixels.
    """

    def __init__(self, view: TopicView, height: int = 760) -> None:
        self.view, self.height = view, height

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to one file and return its path.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        return write_topics(path, self.view)

    def __repr__(self) -> str:
        return f"<topic browser: {len(self.view.words):,} topics; shown in a notebook, written by .save('topics.html')>"

    def _repr_html_(self) -> str:
        inside = html.escape(page(self.view).decode("utf-8"), quote=True)
        title = html.escape(f"Topic browser: {self.view.title}", quote=True)
        return (
            f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{inside}" width="100%" height="{self.height}" '
            'style="border: 1px solid #8886; border-radius: 6px"></iframe>'
        )
