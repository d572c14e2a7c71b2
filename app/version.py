"""The release: the one place where its number stands."""

__version__ = "0.1.0"
