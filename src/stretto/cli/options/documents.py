"""Options that say where documents are and how text is cut into words."""

from __future__ import annotations

from typing import Annotated

import typer

from .declare import TEXT, option

Documents = Annotated[
    str,
    typer.Argument(
        help="Text: a folder of files, a file of lines, or a table (--text COLUMN); or a file of counts: UCI docword, "
        "lda-c, svmlight, triples, MatrixMarket, npz; packed or not.",
        metavar="FILE",
    ),
]
TextOption = Annotated[
    str | None,
    option(
        "--text",
        help="The column of a table that holds the text (.csv, .tsv, .jsonl, .parquet); 'lines' for one document a "
        "line, 'files' for one a file.",
        panel=TEXT,
        metavar="COLUMN",
        show_default="a folder or file that looks like text is read as text",
    ),
]
NamesOption = Annotated[
    str | None,
    option(
        "--names",
        help="The column of the documents' names.",
        panel=TEXT,
        metavar="COLUMN",
        show_default="in a folder the paths of the files",
    ),
]
EncodingOption = Annotated[
    str | None, option("--encoding", help="Encoding of the text.", panel=TEXT, show_default="utf-8")
]
StopWordsOption = Annotated[
    str | None,
    option(
        "--stop-words",
        help="Words left out: 'english', 'none', or a file with one word a line.",
        panel=TEXT,
        show_default="none",
    ),
]
MinDfOption = Annotated[
    str | None,
    option(
        "--min-df",
        help="Leave out words in fewer documents: a number, or a share such as 0.001.",
        panel=TEXT,
        metavar="NUMBER",
        show_default="1",
    ),
]
MaxDfOption = Annotated[
    str | None,
    option(
        "--max-df",
        help="Leave out words in more documents: a number, or a share such as 0.5.",
        panel=TEXT,
        metavar="NUMBER",
        show_default="1.0",
    ),
]
MaxWordsOption = Annotated[
    int | None,
    option("--max-words", help="Keep this many words, the most frequent.", panel=TEXT, min=1, show_default="all"),
]
NgramsOption = Annotated[
    str | None,
    option(
        "--ngrams",
        help="Words of the shortest and the longest sequence that counts as one: 1,2 adds pairs of neighbours.",
        panel=TEXT,
        metavar="A,B",
        show_default="1,1",
    ),
]
LowercaseOption = Annotated[bool, option("--lowercase/--no-lowercase", help="Convert text to lower case.", panel=TEXT)]
TokenPatternOption = Annotated[
    str | None,
    option(
        "--token-pattern",
        help="What a word is, as a regular expression.",
        panel=TEXT,
        metavar="REGEX",
        show_default="two or more letters, digits or underscores",
    ),
]
