"""The studies of this repository, by theme: tables, images, other labels, memory, the paper's theory; not installed.

``python -m studies NAME`` runs a study and writes its page.
"""
