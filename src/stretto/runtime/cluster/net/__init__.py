"""Messages between hosts: frames, encryption, connections, the thread that owns the sockets."""
