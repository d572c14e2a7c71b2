"""What a process says of itself on its port for operators, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.command import Command
from tests.support.waiting import eventually

Labels = dict[str, str]


@dataclass(frozen=True)
class Scraped:
    """One scrape.

    Attributes:
        text: as it came.
        samples: name, labels and value of each series.
        kinds: what each metric is, by the name of its family.
    """

    text: str
    samples: list[tuple[str, Labels, float]]
    kinds: dict[str, str]

    @property
    def names(self) -> set[str]:
        """The names of all series, as a query has them."""
        return {name for name, _, _ in self.samples}

    def all(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        """The series of this name that have these labels, among others."""
        return [
            (found, value) for each, found, value in self.samples if each == name and labels.items() <= found.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """The value of the one series of this name with these labels, among others; 0 where there is none."""
        values = [value for _, value in self.all(name, **labels)]
        assert len(values) <= 1, (name, labels)
        return values[0] if values else 0.0


def read_metrics(text: str) -> Scraped:
    """Read a scrape, strictly."""
    families = list(text_string_to_metric_families(text))
    samples = [(each.name, dict(each.labels), each.value) for family in families for each in family.samples]
    return Scraped(text, samples, {family.name: family.type for family in families})


async def scrape(url: str) -> Scraped:
    """Ask a process for its metrics."""
    status, text = await asyncio.to_thread(_get, f"{url}/metrics")
    assert status == 200
    return read_metrics(text)


async def scraped_until(url: str, holds: Callable[[Scraped], bool]) -> Scraped:
    """Ask again until this holds."""

    found = await scrape(url)

    async def look() -> bool:
        nonlocal found
        found = await scrape(url)
        return holds(found)

    try:
        await eventually(look)
    except TimeoutError:
        short = [line for line in found.text.splitlines() if not line.startswith("#") and "_bucket" not in line]
        raise AssertionError("\n".join(short)) from None
    return found


async def probe(url: str) -> tuple[int, dict[str, Any]]:
    """Ask for JSON, whatever the status."""
    status, text = await asyncio.to_thread(_get, url)
    return status, json.loads(text)


async def is_ready(url: str) -> dict[str, Any]:
    """Wait until a process is ready; what it says then."""

    async def look() -> dict[str, Any] | None:
        status, body = await probe(f"{url}/readyz")
        return body if status == 200 else None

    return await eventually(look)


def ops_url(process: Command) -> str:
    """Where a process answers operators, from its log."""
    return process.says(r'"url": "(http://[^"]+)", "event": "answering operators"')


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
