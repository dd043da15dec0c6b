"""Tables of a job that runs on one node: rows in one array, no cache, no shard and no messages."""
