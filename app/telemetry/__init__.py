"""What operators see of a process."""
