"""Options and arguments of units: parts, partitioned states, declared data; how they are checked, read and used."""
