"""The protocol's messages, as values: no server, no database."""
