"""How a run executes: executor, resume, tool pipeline, guards, budgets, the agent driver. Ports only."""
