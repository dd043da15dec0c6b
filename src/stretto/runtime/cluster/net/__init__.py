"""Messages between hosts: framing, serialization, encryption, ZeroMQ connections and the thread that owns the
sockets.
"""
