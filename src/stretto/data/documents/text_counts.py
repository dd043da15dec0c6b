"""`TextCounts`: how often each word occurs in each document of a collection of text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .options import TextOptions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TextCounts:
    """Word counts of documents, as `st.read_text` makes them; `LatentDirichletAllocation.fit` takes them.

    Attributes
    ----------
    counts : csr_array of float32 [documents, words]
        How often each word occurs in each document; documents without words have empty rows.
    vocabulary : list of str
        The words, in the order of the columns.
    documents : list of str or None
        Names of the documents, in the order of the rows; None where they have none.
    options : TextOptions
        How the text was cut into words.
    snippets : list of str
        How each document begins.
    source : str
        Where the text came from, for messages.

    Examples
    --------
    >>> import stretto as st
    >>> found = st.read_text(["The cat saw a cat.", "A dog!"])
    >>> found.vocabulary, found.counts.toarray().tolist()
    (['cat', 'dog', 'saw', 'the'], [[2.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    """

    counts: Any
    vocabulary: list[str]
    documents: list[str] | None
    options: TextOptions
    snippets: list[str] = field(default_factory=list)
    source: str = "texts"

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and words."""
        return self.counts.shape[0], self.counts.shape[1]

    def __len__(self) -> int:
        return int(self.counts.shape[0])

    @property
    def n_tokens(self) -> int:
        """Words counted, with repetitions."""
        return int(self.counts.data.sum(dtype=np.float64))

    @property
    def n_empty(self) -> int:
        """Documents without a counted word."""
        return int((np.diff(self.counts.indptr) == 0).sum())

    def to_csr(self) -> Any:
        """The counts as a `scipy.sparse.csr_array` of float32 [documents, words]; nothing is copied."""
        return self.counts

    def __repr__(self) -> str:
        D, V = self.shape
        return f"TextCounts({D:,} documents x {V:,} words, {self.n_tokens:,} tokens, {self.source})"
