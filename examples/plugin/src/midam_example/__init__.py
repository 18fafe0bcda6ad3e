"""One of each thing that a package can add to midam without touching it."""
