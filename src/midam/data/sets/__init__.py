"""The built-in data sets: their content, where to find them, how to download and verify them."""
