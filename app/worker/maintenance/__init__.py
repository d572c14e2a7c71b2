"""What workers do beside running tasks: one loop a file, its body a plain function."""
