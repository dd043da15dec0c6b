"""Documents that cannot be read: each is an error, or is left out and counted."""

from __future__ import annotations

import warnings

from stretto.errors import DataError, FormatError

ENCODING = 'name the encoding with encoding="latin-1", or leave out what cannot be read with on_error="skip"'
SKIP = 'repair it, or leave it out with on_error="skip"'


class SkippedDocumentsWarning(UserWarning):
    """Documents were left out because `on_error="skip"` was asked for."""


class Skipped:
    """What could not be read. on_error: "raise" makes the first of it an error, "skip" leaves it out."""

    def __init__(self, on_error: str) -> None:
        if on_error not in ("raise", "skip"):
            raise DataError(f"on_error={on_error!r}; there are raise and skip")
        self.on_error, self.count, self.first = on_error, 0, ""

    def bad(self, path: str, line: int | None, problem: str, remedy: str = SKIP) -> None:
        """A document cannot be read."""
        error = FormatError(path, line, problem, remedy)
        if self.on_error == "raise":
            raise error
        if not self.count:
            self.first = str(FormatError(path, line, problem))
        self.count += 1

    def close(self) -> None:
        """Warn once about everything that was left out."""
        if self.count:
            said = "1 document was" if self.count == 1 else f"{self.count:,} documents were"
            warnings.warn(
                f"{said} left out, because they cannot be read; the first: {self.first}",
                SkippedDocumentsWarning,
                stacklevel=3,
            )
