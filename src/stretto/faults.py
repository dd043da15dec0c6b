"""`st.faults`: the public names of `runtime.simulated.faults`.

    st.Simulated(nodes=4, faults=[st.faults.Pause(2, at=1.0, seconds=0.5), st.faults.Crash(1, at=4.0)])

Times are virtual seconds since the run began, as numbers or such as "20ms".
"""

from stretto.runtime.simulated.faults import Crash, Delay, Pause, Reset, SlowLink, SlowNode

__all__ = ["Crash", "Delay", "Pause", "Reset", "SlowLink", "SlowNode"]
