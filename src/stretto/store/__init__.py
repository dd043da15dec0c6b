"""The parameter server as pure state machines: cache, update buffer, shard, versions, server functions."""
