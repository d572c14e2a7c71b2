"""Pages for operators, under /ui on their port: what runs, waits and fails, one task, and the questions that wait."""
