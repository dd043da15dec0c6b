"""CURVE key pairs. Each host makes its own; only the public half ever leaves the process."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class KeyPair:
    """public, secret: 40 characters of Z85 text each. The secret is not shown when a pair is printed."""

    public: str
    secret: str = field(repr=False)

    def __getstate__(self) -> object:
        raise TypeError("a KeyPair holds a secret and stays in its process; send its `public` text")


def new_pair() -> KeyPair:
    """A pair that nobody else has."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())
