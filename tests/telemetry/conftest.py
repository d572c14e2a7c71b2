"""What these tests run against: a real service on a real database."""

from tests.support.service import service

__all__ = ["service"]
