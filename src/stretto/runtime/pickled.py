"""Pickle values that users wrote, with an error that says what to return instead."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any


def pickled(value: Any, refusal: Callable[[Exception], Exception]) -> bytes:
    """The value as bytes. refusal: makes of pickle's error the one to raise."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise refusal(error) from error
