"""For processes that are copied (readymade.py): what all loops share is compiled when this is imported, no test's loop.

Compiling a loop of one line takes seconds, nearly all of them for helpers that every loop calls. What is compiled here
stays in memory: there is no cache to keep it in.
"""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import numpy as np

import stretto as st


def loop(s: Any, n: int) -> None:
    """None of the tests' loops, with the types of most."""
    for i in range(n):
        s[i] = i - 0.25


with mock.patch.dict(os.environ, {"STRETTO_CACHE": os.devnull}):
    for runtime in (st.Serial(), st.Threads(1)):
        st.parallel(runtime=runtime)(loop)(np.zeros(3), 3)
