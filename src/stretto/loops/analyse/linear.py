"""`Linear`: a linear form of integer variables, Σ factor · variable + constant.

A variable is a dimension of the iteration space (0, 1, …: the value of its index) or the counter of an inner loop (-1,
-2, …).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """Σ factor · variable + constant.

    >>> Linear(((0, 2), (1, -1)), 3).times(2)
    Linear(terms=((0, 4), (1, -2)), constant=6)
    """

    terms: tuple[tuple[int, int], ...] = ()  # (variable, factor ≠ 0), in the order of the variables
    constant: int = 0

    @property
    def dims(self) -> tuple[tuple[int, int], ...]:
        """The terms of dimensions."""
        return tuple(term for term in self.terms if term[0] >= 0)

    @property
    def counters(self) -> tuple[int, ...]:
        """The counters of inner loops among its variables."""
        return tuple(variable for variable, _ in self.terms if variable < 0)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor · other."""
        terms = dict(self.terms)
        for variable, by in other.terms:
            terms[variable] = terms.get(variable, 0) + factor * by
        kept = tuple(sorted((variable, by) for variable, by in terms.items() if by))
        return Linear(kept, self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        return Linear().plus(self, factor)

    def shifted(self, by: int) -> Linear:
        return Linear(self.terms, self.constant + by)
