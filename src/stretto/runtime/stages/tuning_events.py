"""Report the decisions of adaptive loops as events."""

from __future__ import annotations

import time

from stretto.consistency.adaptive.knobs import ConsistencyMove
from stretto.observe.events import Listener, SettingTuned


def tell_move(listener: Listener, loop: str, move: ConsistencyMove) -> None:
    """Report a decision. loop: the unit whose value is its objective."""
    listener(SettingTuned(time.time(), loop, move.window, move.knob, move.before, move.after, move.kind, move.reason))
