"""PostgreSQL: the tables, the statements, and one method a transition."""
