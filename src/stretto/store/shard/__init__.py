"""The server side of tables: rows, versions, server functions, snapshots."""
