"""A run on disk: trained, interrupted and resumed, loaded, applied to new bags."""
