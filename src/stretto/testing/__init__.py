"""Tools for tests of Stretto and of its extensions: the reference interpreter and the replay checker.

The reference interpreter defines the bits that compiled loops must give. The replay checker proves from a recording
that a run over tables kept its guarantees.

    from stretto.testing import check_replay
    print(check_replay(st.run(worker, …, record="full").recording))
"""

from .findings import Violation
from .replay import ReplayError, ReplayReport, check_replay

__all__ = ["ReplayError", "ReplayReport", "Violation", "check_replay"]
