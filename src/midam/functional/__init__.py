"""Pure tensor functions: the log-weighted mean, the poolings on top of it, the objectives.

Nothing here holds state, and nothing here imports anything but torch.
"""
