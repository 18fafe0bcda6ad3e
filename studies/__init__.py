"""The studies of this repository, by theme: tabular sets, images, the paper's theory, regimes; not installed.

``python -m studies NAME`` runs a study and writes its page.
"""
