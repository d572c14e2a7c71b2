"""The protocol's messages as values: envelope, revisions and the Tasks extension. No I/O."""
