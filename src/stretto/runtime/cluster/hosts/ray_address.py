"""Find the address of the Ray cluster that a job runs on, and check that Ray answers at it.

Ray itself tries an unresponsive address for minutes. For `"auto"` it takes any address from a file or from processes of
this machine, including those of ended sessions, other users and containers. So this module searches itself and tries
every address first: a gRPC server answers an HTTP/2 preface at once.

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

SECONDS = 3.0  # seconds for a machine to answer
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # with an empty settings frame
_SETTINGS = 4  # type of the first frame that every HTTP/2 server sends


def found(address: str) -> str:
    """The address to connect to; "" to start a cluster on this machine. Raises RunError if a named cluster does not
    answer.

    A cluster that "auto" finds but that does not answer is skipped with a warning.
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
                "cluster's head) and that its port can be reached from this machine"
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
            f"Ray has a record of a cluster that does not answer: {', '.join(wrong)}; a new one is started. "
            "To use that cluster, give its address; if it has ended, `ray stop` removes the record",
            RuntimeWarning,
            stacklevel=2,
        )
    return ""


def no_answer(address: str, seconds: float = SECONDS) -> str:
    """Why no Ray cluster answers at an address, in words; "" if one may."""
    if "://" in address:  # Ray's client protocol: a different server, which Ray checks itself
        return ""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return "not of the form host:port"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true", "True"):
                return ""  # the answer is encrypted
            connection.settimeout(seconds)
            connection.sendall(_PREFACE)
            answer = b""
            while len(answer) < 9:
                got = connection.recv(64)
                if not got:
                    return "the server at this address closes the connection and is not Ray"
                answer += got
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return "" if answer[3] == _SETTINGS else "the server at this address is not Ray"


def _on_this_machine() -> list[str]:
    """Candidate addresses on this machine: from the file of the last `ray start`, then from running Ray processes.

    Processes in another network namespace (a container) or of another user are skipped: a job joins those only by
    address.
    """
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
    """The folder of Ray's temporary files."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
