"""`python -m chunkwise` is `chunkwise`."""

from chunkwise.cli import main

main()
