"""What training costs: instances encoded, so that draw rules and estimators can be compared at equal budgets."""

# A pass of one instance forward, and one backward.
FORWARD, BACKWARD = 1, 2
