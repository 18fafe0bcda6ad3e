"""The data sets of the studies: their content, where to find them, how to download and verify them; torchmil's."""
