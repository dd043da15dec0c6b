"""`ClusterSettings`: the options of a run on several processes, checked."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.checks import flags, shown, whole
from stretto.comm.units import seconds
from stretto.errors import PlanError


@dataclass(frozen=True)
class ClusterSettings:
    """The parameters of `st.Cluster`, which documents them."""

    address: str = "auto"
    nodes: int = 2
    threads: int = 1
    encrypt: bool = True
    patience: str | float = 5.0
    start_within: str | float = 60.0
    replace_within: str | float = 30.0
    restarts: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.address, str) or not self.address:
            raise PlanError(
                f"Cluster: address={shown(self.address)}; give 'auto', the address of a Ray cluster such as "
                "'10.0.0.5:6379', or 'processes' for processes of this machine"
            )
        flags(encrypt=self.encrypt, owner="Cluster")
        for name, least in (("nodes", 1), ("threads", 1), ("restarts", 0)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least, "Cluster"))
        for name in ("patience", "start_within", "replace_within"):
            value = seconds(getattr(self, name))
            if not value > 0:
                raise PlanError(f"Cluster: {name}={getattr(self, name)!r}; give a time above zero, such as '5s'")
            object.__setattr__(self, name, value)

    @property
    def workers(self) -> int:
        """Threads of all nodes."""
        return self.nodes * self.threads
