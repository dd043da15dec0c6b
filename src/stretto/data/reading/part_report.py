"""Problems found in a part of a file: as `LineReport`, with line numbers that may count from the start of the part."""

from __future__ import annotations

from stretto.data.reading.file_part import FilePart, origin, wrong
from stretto.data.reading.report import LineReport


class PartReport(LineReport):
    """Takes problems as the reader of a part meets them. part: None where it is all of a packed file."""

    def __init__(self, path: str, on_error: str, part: FilePart | None) -> None:
        super().__init__(path, on_error)
        self.part = part

    def bad(self, line: int, kind: str, text: str, remedy: str) -> None:
        """One bad line, counted from 1."""
        if kind == "entry count":
            return  # what a header promises of the whole file, no part can keep
        if self.on_error == "raise":
            raise wrong(self.part, self.path, line, text, remedy)
        counted = ""
        if self.part is not None and self.part.walked is None:
            counted = f" (counted {origin(self.part)})"
        super().bad(line, kind, text + counted, remedy)
