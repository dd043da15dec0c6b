"""Decide which columns of a data frame are the user, the item and the rating.

Columns are found by name, never by guessing from their contents:

    >>> find_roles(["timestamp", "rating", "movieId", "userId"], ColumnChoice())
    (3, 2, 1)

A table whose columns have no names (no header, or pandas' default 0, 1, 2) is taken in the order user, item, rating
when it has exactly these three columns. Ambiguous tables are refused, and the message says what to pass: `user=`,
`item=` and `rating=` name the columns, `columns=` gives all of them at once, by name or position; two columns mean that
every value is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stretto.errors import DataError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Compared without case and without anything but letters and digits: "User-ID" is "userid".
USER_NAMES = _words(
    "user users userid uid username userkey customer customerid client clientid account accountid member memberid "
    "reviewer reviewerid visitor visitorid person personid reader readerid listener listenerid player playerid "
    "doc docs docid document documents documentid row rows rowid"
)
ITEM_NAMES = _words(
    "item items itemid iid itemkey movie movies movieid film films filmid product products productid asin sku "
    "book books bookid isbn song songid track trackid artist artistid album albumid business businessid "
    "restaurant restaurantid article articleid game gameid anime animeid joke jokeid app appid video videoid "
    "recipe recipeid course courseid word words wordid term termid token tokenid col cols colid column columnid"
)
RATING_NAMES = _words(
    "rating ratings ratingvalue bookrating movierating userrating starrating stars star score scores value values val "
    "overall count counts cnt freq frequency weight plays playcount listens quantity qty data"
)
# Single letters that give a role where no name above does: user u, item i; or, if there is a j, row i and column j.
_LETTERS = {"user": {"u"}, "item": {"i"}, "rating": {"r", "v", "n", "x"}}
_INDICES = {"user": {"i"}, "item": {"j"}, "rating": {"r", "v", "n", "x"}}
_ROLES = (("user", USER_NAMES), ("item", ITEM_NAMES), ("rating", RATING_NAMES))


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that the caller named; None where they are found by name."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    # Names or positions of all columns: user, item and rating, or the first two where every value is 1.
    columns: Sequence[int | str] | None = None

    def __post_init__(self) -> None:
        given = {name: value for name in ("user", "item", "rating") if (value := getattr(self, name)) is not None}
        for name, value in given.items():
            if not isinstance(value, str):
                raise DataError(
                    f'{name}={value!r}: give the name of a column as text, such as {name}="{name}"; positions go into '
                    "columns=(0, 1, 2)"
                )
        if self.columns is None:
            return
        if given:
            raise DataError(
                f"columns= says which columns to take, and {', '.join(f'{name}=' for name in given)} says it again; "
                "leave one of them out"
            )
        if isinstance(self.columns, str | bytes) or not isinstance(self.columns, Sequence):
            raise DataError(f"columns={self.columns!r}: {_WAY}")
        for one in self.columns:
            if isinstance(one, bool) or not isinstance(one, int | str) or (isinstance(one, int) and one < 0):
                raise DataError(f"columns={tuple(self.columns)!r}: {one!r} is neither a name nor a position from 0 on")
        if len(self.columns) not in {2, 3} or len(set(self.columns)) < len(self.columns):
            raise DataError(f"columns={tuple(self.columns)!r}: {_WAY}")

    @property
    def positions(self) -> bool:
        """Whether every column is given by its position."""
        return self.columns is not None and all(isinstance(one, int) for one in self.columns)


_WAY = (
    "give the names or positions of user, item and rating, such as columns=(0, 1, 2), or of the first two where every "
    "value is 1"
)


def column_choice(columns: Any, user: str | None, item: str | None, rating: str | None) -> ColumnChoice:
    """`ColumnChoice` of what a caller passed, any sequence of columns as a tuple."""
    if isinstance(columns, Sequence) and not isinstance(columns, str | bytes):
        columns = tuple(columns)
    return ColumnChoice(user, item, rating, columns)


def plain_name(name: Any) -> str:
    """A column's name as it is compared.

    >>> plain_name(' "User-ID"')
    'userid'
    """
    return "".join(c for c in str(name).casefold() if c.isalnum())


def is_known(name: Any) -> bool:
    """Whether a column of this name has a known role."""
    return any(plain_name(name) in names for _, names in _ROLES)


def unnamed(names: Sequence[Any]) -> bool:
    """Whether these are no names but pandas' default numbers."""
    return all(isinstance(name, int) for name in names) and list(names) == list(range(len(names)))


def find_roles(names: Sequence[Any], choice: ColumnChoice) -> tuple[int, int, int]:
    """Positions of the user, item and rating columns; the rating is at -1 where every value is 1.

    Raises DataError where that is not clear; the message has no source in front.
    """
    if choice.columns is not None:
        found = [_position(names, one) for one in choice.columns]
        if len(set(found)) < len(found):
            raise DataError(f"columns={tuple(choice.columns)!r} takes one column twice; {_listed(names)}")
        return found[0], found[1], found[2] if len(found) == 3 else -1
    if unnamed(names) and choice == ColumnChoice():
        if len(names) == 3:
            return 0, 1, 2
        raise DataError(
            f"the table has {len(names)} columns without names, so it is not clear which are user, item and rating; "
            "say it with columns=(0, 1, 2)"
        )
    user, item, rating = _by_name(names, [plain_name(name) for name in names], choice)
    return user, item, rating


def find_pair(names: Sequence[Any]) -> tuple[int, int]:
    """Positions of the user and item columns of a table of pairs, which may have others."""
    if unnamed(names) and len(names) == 2:
        return 0, 1
    try:
        found = _by_name(names, [plain_name(name) for name in names], ColumnChoice(), _ROLES[:2])
    except DataError:
        # Tables of pairs have no arguments that name columns.
        raise DataError(
            "it is not clear which columns are the user and the item; rename them to user and item, or pass the two "
            f'columns alone: (frame["…"], frame["…"]); {_listed(names)}'
        ) from None
    return found[0], found[1]


def _by_name(names: Sequence[Any], plain: Sequence[str], choice: ColumnChoice, roles: Any = _ROLES) -> tuple[int, ...]:
    asked = {role: getattr(choice, role) for role, _ in roles}
    taken = [_position(names, name) for name in asked.values() if name is not None]
    letters = _INDICES if "j" in plain else _LETTERS
    found: dict[str, int] = {}
    missing = []
    for role, known in roles:
        if asked[role] is not None:
            found[role] = _position(names, asked[role])
            continue
        candidates = [k for k, name in enumerate(plain) if name in known and k not in taken]
        candidates = candidates or [k for k, name in enumerate(plain) if name in letters[role] and k not in taken]
        if len(candidates) > 1:
            these = " and ".join(repr(str(names[k])) for k in candidates)
            raise DataError(
                f'{these} may each be the {role} column; say which, such as {role}="{names[candidates[0]]}"'
            )
        if candidates:
            found[role] = candidates[0]
        else:
            missing.append(role)
    if missing:
        raise DataError(_unclear(names, plain, found, missing))
    if len(set(found.values())) < len(found):
        twice = " and ".join(f'{role}="{names[k]}"' for role, k in found.items() if list(found.values()).count(k) > 1)
        raise DataError(f"{twice} name one column; give each its own; {_listed(names)}")
    return tuple(found.values())


def _unclear(names: Sequence[Any], plain: Sequence[str], found: dict[str, int], missing: list[str]) -> str:
    wide = _looks_wide(names, plain, found)
    if wide is not None:
        return wide
    if missing == ["rating"]:
        others = [str(name) for k, name in enumerate(names) if k not in found.values()]
        way = f'rating="{others[0]}"' if len(others) == 1 else 'rating="…"'
        pair = tuple(str(names[found[role]]) for role in ("user", "item"))
        ways = [f"name it with {way}"] if others else []
        ways.append(f"pass columns={pair!r} if every value is 1")
        return f"no column is called rating, score, value, count or the like; {', or '.join(ways)}; {_listed(names)}"
    these = " and ".join(missing)
    say = ", ".join(f'{role}="…"' for role in missing)
    return f"it is not clear which column is the {these}; say it with {say}; {_listed(names)}"


def _looks_wide(names: Sequence[Any], plain: Sequence[str], found: dict[str, int]) -> str | None:
    """The message for a table with one column for each item, if this is probably one; None otherwise."""
    if "item" in found or "rating" in found:
        return None
    index = next((k for k, name in enumerate(plain) if not name), None)  # of pandas, written without a name
    rest = [k for k in range(len(names)) if k != found.get("user", index)]
    numbered = len(rest) >= 2 and all(plain[k].isdigit() for k in rest)
    if not numbered and ("user" not in found or len(rest) < 3) and len(names) < 5:
        return None
    who = str(names[found["user"]]) if "user" in found else "user"
    return (
        "this looks like a wide table, with one column for each item; give one record for each rating instead: in "
        f'pandas frame.melt("{who}", var_name="item", value_name="rating").dropna(), in Polars '
        f'frame.unpivot(index="{who}", variable_name="item", value_name="rating").drop_nulls(). If it is a table of '
        f'ratings, name the columns: user="…", item="…", rating="…"; {_listed(names)}'
    )


def _position(names: Sequence[Any], one: int | str) -> int:
    if isinstance(one, int):
        if one >= len(names):
            raise DataError(f"there is no column {one}; {_listed(names)}, counted from 0")
        return one
    found = [k for k, name in enumerate(names) if str(name).strip() == one.strip()]
    if not found:
        raise DataError(f"there is no column {one!r}; {_listed(names)}")
    if len(found) > 1:
        raise DataError(f"{len(found)} columns are called {one!r}; rename them, or give positions: columns=(0, 1, 2)")
    return found[0]


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
    return f"its columns are {shown}"
