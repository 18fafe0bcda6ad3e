"""The studies of this repository, by theme: tabular sets, images, the paper's theory, regimes; not installed.

``python -m studies NAME`` runs one and writes its page.
"""
