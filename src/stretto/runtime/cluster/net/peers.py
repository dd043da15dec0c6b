"""The other hosts that a host is connected with: made, kept and closed as the roster says, known by their keys."""

from __future__ import annotations

from collections.abc import Mapping

import zmq

from stretto.runtime.cluster.hosts.calls import Address

from .allow_list import AllowList
from .curve_keys import KeyPair
from .peer import Peer


class Peers:
    """Connections to the other hosts, over one ZeroMQ context.

    Parameters
    ----------
    keys : KeyPair or None
        The pair of this host; None: no encryption.
    credit : int
        Bytes in flight from one node to another at most.

    Attributes
    ----------
    by_host : dict of Peer
        The connected hosts by number. Replaced as a whole, so other threads may read it.
    """

    def __init__(self, keys: KeyPair | None, credit: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.by_host: dict[int, Peer] = {}
        self._keys, self._credit = keys, credit
        self._host_of_key: dict[str, int] = {}
        self._gate = AllowList(self.context) if keys is not None else None

    @property
    def refused(self) -> int:
        """Connections that were refused for their key."""
        return 0 if self._gate is None else self._gate.refused

    @property
    def resent(self) -> int:
        """Messages that were sent again."""
        return sum(peer.resent for peer in list(self.by_host.values()))

    def host_of(self, part: zmq.Frame) -> int:
        """The host whose key the connection of a message has; -1 for an unknown one, or without keys."""
        if self._keys is None:
            return -1
        key = part.get("User-Id")
        return self._host_of_key.get(key if isinstance(key, str) else "", -1)

    def follow(self, others: Mapping[int, Address], now: float) -> bool:
        """Connect to new addresses, close removed ones, admit exactly these hosts; whether there was a change."""
        if {host: _reached_at(peer.address) for host, peer in self.by_host.items()} == {
            host: _reached_at(address) for host, address in others.items()
        }:
            return False
        before, met = dict(self.by_host), {}
        for host, address in others.items():
            known = before.pop(host, None)
            if known is not None and _reached_at(known.address) != _reached_at(address):
                known.close()
                known = None
            met[host] = known or Peer(self.context, address, self._keys, self._credit, now)
        for gone in before.values():
            gone.close()
        self.by_host = met
        self._host_of_key = {address.public: host for host, address in others.items()}
        if self._gate is not None:
            self._gate.allow(self._host_of_key)
        return True

    def close(self) -> None:
        """Close all connections; those to the context's other sockets must be closed already."""
        for peer in self.by_host.values():
            peer.close()
        if self._gate is not None:
            self._gate.close()
        self.context.destroy(0)


def _reached_at(address: Address) -> tuple[str, str]:
    return address.endpoint, address.public
