"""The process that runs tools: it claims tasks, runs attempts, keeps its lease, and looks after the tables."""
