"""CURVE key pairs for encryption. Each host creates its own; only the public key leaves the process."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair. The secret is not shown when a pair is printed."""

    public: str  # 40 characters of Z85 text
    secret: str = field(repr=False)  # 40 characters of Z85 text

    def __getstate__(self) -> object:
        raise TypeError(
            "a KeyPair cannot be pickled: it holds a secret that stays in its process; send its `public` text"
        )


def new_pair() -> KeyPair:
    """Create a new random pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())
