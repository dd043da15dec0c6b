"""Messages of one size through bare ZeroMQ sockets between two processes: what nothing above it can beat."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

HIGH_WATER = 16  # messages


def bare(nbytes: int, count: int, encrypt: bool) -> float:
    """Messages a second, PUSH to PULL over loopback, without copies on our side."""
    import zmq

    keys = zmq.curve_keypair() if encrypt else None
    ways = multiprocessing.get_context("spawn")
    told: Any = ways.Queue()
    other = ways.Process(target=_receive, args=(count, keys, told))
    other.start()
    port = told.get(timeout=60)
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = HIGH_WATER
    if keys is not None:
        socket.curve_serverkey = keys[0]
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    socket.connect(f"tcp://127.0.0.1:{port}")
    message = bytes(nbytes)
    for _ in range(count + 1):
        socket.send(message, copy=False)
    rate = float(told.get(timeout=120))
    other.join()
    socket.close(0)
    context.term()
    return rate


def _receive(count: int, keys: Any, told: Any) -> None:
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = HIGH_WATER
    if keys is not None:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = keys
    told.put(socket.bind_to_random_port("tcp://127.0.0.1"))
    socket.recv()
    began = time.perf_counter()
    for _ in range(count):
        socket.recv(copy=False)
    told.put(count / (time.perf_counter() - began))
