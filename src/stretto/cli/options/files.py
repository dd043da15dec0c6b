"""Options that say how a file of records is read."""

from __future__ import annotations

from typing import Annotated

from .choices import Duplicates, Format, Ids, OnError
from .declare import DATA, option

FormatOption = Annotated[Format, option("--format", help="What the file is; 'auto' looks.", panel=DATA)]
DuplicatesOption = Annotated[Duplicates, option("--duplicates", help="What becomes of a pair rated twice.", panel=DATA)]
OnErrorOption = Annotated[
    OnError, option("--on-error", help="Stop at the first bad line, or skip and count them.", panel=DATA)
]
SepOption = Annotated[
    str | None,
    option(
        "--sep",
        help="What separates fields: '::', tab, '|', ',', ';' or space (any run of blanks).",
        panel=DATA,
        metavar="TEXT",
        show_default="as the file suggests",
    ),
]
ColumnsOption = Annotated[
    str | None,
    option(
        "--columns",
        help="Columns of user, item and rating, by position from 0 or by name: 0,1,2; the first two where every value "
        "is 1.",
        panel=DATA,
        metavar="A,B,C",
        show_default="by the names in the header",
    ),
]
UserOption = Annotated[
    str | None, option("--user", help="Name of the users' column.", panel=DATA, metavar="NAME", show_default=False)
]
ItemOption = Annotated[
    str | None, option("--item", help="Name of the items' column.", panel=DATA, metavar="NAME", show_default=False)
]
RatingOption = Annotated[
    str | None,
    option("--rating", help="Name of the ratings' column.", panel=DATA, metavar="NAME", show_default=False),
]
IdsOption = Annotated[Ids, option("--ids", help="What ids are; 'text' keeps 007 apart from 7.", panel=DATA)]
ZeroOption = Annotated[
    bool | None,
    option(
        "--zero-based/--one-based",
        help="Where the indices of svmlight start.",
        panel=DATA,
        show_default="0 if one occurs, else 1",
    ),
]
CacheOption = Annotated[bool, option("--cache/--no-cache", help="Keep what was parsed, for the next time.", panel=DATA)]
