"""The parameter server as state machines: cache, update buffer, shard, versions, server functions. Pure."""
