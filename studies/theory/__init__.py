"""Studies of the paper's claims: complexity, the tracked state, the MIL assumption."""
