"""Which fleet starts the host processes of a cluster: Ray's, or plain processes of this machine."""

from __future__ import annotations

from stretto.runtime.cluster.settings import ClusterSettings

from .fleet import Fleet, HostSettings


def fleet_of(spec: ClusterSettings, settings: HostSettings) -> Fleet:
    """Create the fleet that a spec asks for."""
    if spec.address == "processes":
        from .local_fleet import LocalFleet

        return LocalFleet(settings)
    from .ray_fleet import RayFleet

    return RayFleet(spec, settings)
