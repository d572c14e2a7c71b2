"""Where people and programs may be sent: nobody on the way can read or change what goes there."""

from __future__ import annotations

import pytest

from app.domain.urls import is_secure

GOOD = [
    "https://example.com",
    "https://example.com:8443/pay?id=1&to=a%20b#there",
    "https://[2001:db8::1]/x",
    "HTTPS://Example.com/",
    "http://localhost:3000/x",
    "http://127.0.0.1/x",
    "http://[::1]:8080/x",
]
BAD: list[object] = [
    "http://example.com/pay",
    "http://localhost.example.com/",
    "http://127.0.0.1.example.com/",
    "https://",
    "https:///pay",
    "https:example.com",
    "//example.com/pay",
    "/pay",
    "",
    "javascript:alert(1)",
    "data:text/html,hello",
    "file:///etc/passwd",
    "ftp://example.com/",
    "https://bank.example@evil.example/",
    "https://me:secret@example.com/",
    "http://localhost@evil.example/",
    "https://example.com:port/",
    "https://example.com:99999/",
    "https://[::1/",
    "https://example.com/a b",
    " https://example.com/",
    "https://example.com/\n",
    "https://example.com/\r\nX: 1",
    "https://exa\tmple.com/",
    "https://example.com/\x1b[2J",
    'https://example.com/"',
    "https://example.com/<script>",
    "https://ex\u0430mple.com/",
    "https://example.com\\@evil.example/",
    None,
    7,
    b"https://example.com/",
]


@pytest.mark.parametrize("url", GOOD)
def test_an_address_that_is_safe(url: str) -> None:
    assert is_secure(url)
    assert is_secure(url, elsewhere=True)


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_is_not(url: object) -> None:
    assert not is_secure(url)


def test_http_elsewhere_is_taken_only_where_that_is_asked_for() -> None:
    assert is_secure("http://example.com/pay", elsewhere=True)
    for url in BAD:
        http = isinstance(url, str) and url.startswith("http://") and "@" not in url
        assert http or not is_secure(url, elsewhere=True), url
