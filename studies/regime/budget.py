"""What a training costs in instances encoded, so that estimators can be compared at equal budgets.

A forward pass of one instance costs 1, its backward pass 2. A step over K bags of n instances costs

| estimator | cost of a step |
|---|---|
| minibatch, vrsp | 3 B K |
| exact, where the K bags fit one chunk | 3 n K |
| exact, two passes | 4 n K |
| exact-point | (n + 3 B) K |
"""

FORWARD, BACKWARD = 1, 2


def step_cost(estimator: str, *, size: int, instances: int, bags: int, chunk_size: int) -> int:
    """Return the cost of one step, in forward passes of one instance; first passes included.

    Examples
    --------
    >>> step_cost("vrsp", size=500, instances=4, bags=16, chunk_size=4096)
    192
    >>> step_cost("exact", size=500, instances=4, bags=16, chunk_size=4096)
    32000
    """
    drawn = min(instances, size) * (FORWARD + BACKWARD)
    if estimator == "exact":
        passes = FORWARD + BACKWARD if size * bags <= chunk_size else 2 * FORWARD + BACKWARD
        return passes * size * bags
    return (drawn + (FORWARD * size if estimator == "exact-point" else 0)) * bags


def affordable_steps(estimator: str, *, size: int, instances: int, steps: int, bags: int, chunk_size: int) -> int:
    """Return the whole steps that the price of `steps` steps of vrsp buys; 0 where it is less than one.

    Examples
    --------
    >>> affordable_steps("exact", size=500, instances=4, steps=300, bags=16, chunk_size=4096)
    1
    """
    budget = steps * step_cost("vrsp", size=size, instances=instances, bags=bags, chunk_size=chunk_size)
    return budget // step_cost(estimator, size=size, instances=instances, bags=bags, chunk_size=chunk_size)
