"""The partial likelihood of Cox's proportional hazards, on the bags of a batch.

Cox, D. R. (1972). Regression models and life-tables. JRSS B 34(2), 187-202; ties as of Breslow, N. (1974). Covariance
analysis of censored survival data. Biometrics 30(1), 89-99.
"""

import torch
from torch import Tensor


def cox(log_risk: Tensor, time: Tensor, event: Tensor) -> Tensor:
    """Negative log partial likelihood of log risks [K], the mean over the bags that had their event.

    ``log sum_{j: t_j >= t_i} exp(f_j) - f_i`` for each i with an event; bags with their events at one time all count
    among those at risk (Breslow). `time` [K] is of the event where `event` [K] is 1, of the censoring where it is 0.
    The bags at risk are those of the batch: of a batch without an event, or of one bag, the value and its gradient
    are 0.

    Examples
    --------
    >>> round(cox(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 0])).exp().item(), 4)
    3.0
    """
    at_risk = time.unsqueeze(0) >= time.unsqueeze(1)
    # Each bag is at risk at its own time, so that no row is empty.
    total = torch.where(at_risk, log_risk.unsqueeze(0), -torch.inf).logsumexp(dim=1)
    had = (event > 0).to(log_risk.dtype)
    return (had * (total - log_risk)).sum() / had.sum().clamp(min=1)
