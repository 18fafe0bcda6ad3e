"""The paper's tables, figures and claims, each by one command: `midam paper NAME`."""
