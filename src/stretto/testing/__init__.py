"""For us and for those who extend us: the reference interpreter, which defines the bits compiled loops must give, and
the replay checker, which proves from a recording that a run over tables kept its promises.

    from stretto.testing import check_replay
    print(check_replay(st.run(worker, …, record="full").recording))
"""

from .findings import Violation
from .replay import ReplayError, Report, check_replay

__all__ = ["ReplayError", "Report", "Violation", "check_replay"]
