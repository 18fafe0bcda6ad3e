"""Studies on feature vectors: the paper's tables and figures on tabular sets, and the defaults."""
