"""The protocol over HTTP (core, "Streamable HTTP"): as thin as it can be."""
