"""How long a generated example takes says nothing here: tests run beside each other."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("wire", deadline=None)
settings.load_profile("wire")
