"""Which Ray cluster a job runs on: found and asked whether it is there, before Ray is.

Ray itself tries an address for minutes when nobody answers, and for `"auto"` it takes whatever address it finds in a
file or among the processes of this machine, those of sessions that are over, of other people and of containers
included. So we look ourselves, and every address is tried first: who speaks gRPC answers an HTTP/2 preface at once.

    found("10.0.0.5:6379")     that address, or RunError with the reason, within seconds
    found("auto")              RAY_ADDRESS, or a cluster that answers on this machine, or "" where there is none
    found("local")             ""
"""

from __future__ import annotations

import os
import socket
import warnings
from contextlib import suppress
from pathlib import Path

from stretto.errors import RunError

SECONDS = 3.0  # in which a machine has to answer
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
_SETTINGS = 4  # the type of the frame every HTTP/2 server begins with


def found(address: str) -> str:
    """The address to connect to; "": none, start a cluster here. Raises RunError where one was named and is not there.

    A cluster that "auto" finds and that does not answer is passed over with a warning.
    """
    if address == "local":
        return ""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named == "local":
        return ""
    if named and named != "auto":
        if why := no_answer(named):
            whence = "RAY_ADDRESS" if address == "auto" else "Cluster(address=…)"
            raise RunError(
                f"no Ray cluster answers at {named} ({whence}): {why}; check the address (`ray status` on that "
                "cluster's head) and that the port is open from here"
            )
        return named
    wrong = []
    for one in _on_this_machine():
        why = no_answer(one)
        if not why:
            return one
        wrong.append(f"{one} ({why})")
    if wrong:
        warnings.warn(
            f"Ray left word of a cluster that does not answer: {', '.join(wrong)}; a new one is started here. "
            "If it should be used, give its address; if it is over, `ray stop` makes Ray forget it",
            RuntimeWarning,
            stacklevel=2,
        )
    return ""


def no_answer(address: str, seconds: float = SECONDS) -> str:
    """Why no Ray cluster can be at an address, in words; "" if there may be one."""
    if "://" in address:  # Ray's client protocol: another server, which Ray asks itself
        return ""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return "not of the form host:port"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true", "True"):
                return ""  # an answer would have to be decrypted
            connection.settimeout(seconds)
            connection.sendall(_PREFACE)
            answer = b""
            while len(answer) < 9:
                got = connection.recv(64)
                if not got:
                    return "who listens there hangs up, and is not Ray"
                answer += got
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return "" if answer[3] == _SETTINGS else "who listens there is not Ray"


def _on_this_machine() -> list[str]:
    """What the last `ray start` here wrote down, then what Ray's processes of this machine are connected to. Processes
    of another network (in a container) or of another user are not ours to join unasked."""
    addresses = []
    with suppress(OSError):
        addresses.append((Path(_temporary()) / "ray" / "ray_current_cluster").read_text().strip())
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"/raylet") or not (process / "ns/net").samefile("/proc/self/ns/net"):
                continue
            flag = next(word for word in words if word.startswith((b"--gcs-address=", b"--gcs_address=")))
            addresses.append(flag.partition(b"=")[2].decode())
    return list(dict.fromkeys(address for address in addresses if address))


def _temporary() -> str:
    """The folder in which Ray keeps its own."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
