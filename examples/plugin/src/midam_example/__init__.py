"""One example of each part that a package can add to midam without a change of midam."""
