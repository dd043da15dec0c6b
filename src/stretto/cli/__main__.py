"""`python -m stretto.cli` is the `stretto` command."""

from stretto.cli import main

main()
