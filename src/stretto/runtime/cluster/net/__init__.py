"""Messages between hosts: serialization, encryption, ZeroMQ connections and the thread that owns the sockets."""
