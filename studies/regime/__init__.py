"""The study of regimes: which estimator to take."""
