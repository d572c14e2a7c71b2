"""JWT access tokens: which are taken, for whom, and why others are not (core, "Access Token Usage")."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from structlog.testing import capture_logs

from app.domain.principal import Principal
from app.domain.scopes import Scopes
from tests.http.auth.door import door
from tests.support.issuer import AUDIENCE, FIRST, Issuer, SigningKey, forged

# -- what is taken ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RSA", "P-256"])
async def test_a_good_token_is_taken_for_its_issuer_and_subject(issuer: Issuer, kind: Any) -> None:
    key = SigningKey("mine", kind)
    issuer.keys = [key.jwk()]
    async with door(issuer) as opened:
        principal = await opened.admits(issuer.token(key))
    assert principal == Principal(f"{issuer.url} ada", frozenset())


async def test_eddsa_is_taken_where_it_is_allowed_and_only_there(issuer: Issuer) -> None:
    key = SigningKey("edwards", "Ed25519")
    issuer.keys = [key.jwk()]
    async with door(issuer, algorithms=["EdDSA"]) as opened:
        assert (await opened.admits(issuer.token(key))).owner == f"{issuer.url} ada"
    async with door(issuer) as opened:
        assert "an algorithm that is not allowed here" in (await opened.refuses(issuer.token(key))).error["message"]


@pytest.mark.parametrize("change", [{"typ": None}, {"typ": "JWT"}, {"typ": "application/at+jwt"}, {"kid": None}])
async def test_what_many_servers_leave_out_of_the_head_may_be_missing(issuer: Issuer, change: dict[str, Any]) -> None:
    head = {"alg": "RS256", "kid": "first", "typ": "at+jwt"} | change
    token = forged({name: value for name, value in head.items() if value is not None}, issuer.claims(), _rsa)
    async with door(issuer) as opened:
        await opened.admits(token)


async def test_a_token_without_a_key_id_is_tried_with_every_key(issuer: Issuer) -> None:
    issuer.keys = [SigningKey("other").jwk(), SigningKey("curve", "P-256").jwk(), FIRST.jwk()]
    async with door(issuer) as opened:
        await opened.admits(forged({"alg": "RS256"}, issuer.claims(), _rsa))
        stranger = forged({"alg": "RS256"}, issuer.claims(), _rsa_of("stranger"))
        assert "a signature that is not valid" in (await opened.refuses(stranger)).error["message"]


async def test_clocks_may_be_half_a_minute_apart(issuer: Issuer) -> None:
    now = int(time.time())
    async with door(issuer) as opened:
        await opened.admits(issuer.token(exp=now - 10))
        await opened.admits(issuer.token(nbf=now + 20, iat=now + 20))
        await opened.refuses(issuer.token(exp=now - 40))


async def test_a_token_for_several_audiences_is_taken_if_this_server_is_one(issuer: Issuer) -> None:
    async with door(issuer, audiences=["api://perdure", AUDIENCE]) as opened:
        for audience in (AUDIENCE, "api://perdure", ["https://other.example", "api://perdure"]):
            await opened.admits(issuer.token(aud=audience))
        for audience in ("https://other.example", ["https://other.example"], [], AUDIENCE + "/", AUDIENCE.upper()):
            await opened.refuses(issuer.token(aud=audience))


async def test_no_two_subjects_or_clients_are_the_same_owner(issuer: Issuer) -> None:
    whos: list[dict[str, Any]] = [
        {"sub": "ada"},
        {"sub": "ada", "client_id": "app"},
        {"sub": "ada", "azp": "other"},
        {"sub": "ada app"},
        {"sub": "ada%20app"},
        {"sub": "ada\napp"},
        {"sub": "Ada"},
        {"sub": "ada", "client_id": "app ada"},
        {"sub": "a\u0308da"},
        {"sub": "\u00e4da"},
    ]
    async with door(issuer) as opened:
        owners = [(await opened.admits(issuer.token(**who))).owner for who in whos]
        again = (await opened.admits(issuer.token(sub="ada", client_id="app", azp="ignored"))).owner
    assert len(set(owners)) == len(whos)
    assert again == owners[1]
    assert all(owner.isascii() and owner.isprintable() for owner in owners)


@pytest.mark.parametrize(
    "granted",
    [{"scope": "tools:call admin"}, {"scp": ["tools:call", "admin", 7]}, {"scope": ["tools:call", "admin"]}],
)
async def test_scopes_are_read_as_servers_write_them_and_broad_ones_imply_others(
    issuer: Issuer, granted: dict[str, Any]
) -> None:
    scopes = Scopes([("admin", "write"), ("write", "read"), ("read", "write")])
    async with door(issuer, scopes=scopes) as opened:
        principal = await opened.admits(issuer.token(**granted))
    assert principal.scopes == frozenset({"tools:call", "admin", "write", "read"})


@pytest.mark.parametrize("granted", [{}, {"scope": None}, {"scope": 7}, {"scope": {"admin": True}}, {"scp": "x" * 99}])
async def test_a_token_that_grants_nothing_that_can_be_read_grants_nothing(
    issuer: Issuer, granted: dict[str, Any]
) -> None:
    async with door(issuer) as opened:
        assert (await opened.admits(issuer.token(**granted))).scopes in (frozenset(), frozenset({"x" * 99}))


# -- what is not ------------------------------------------------------------------------------------------------------


def _rsa(data: bytes) -> bytes:
    return _rsa_of("first")(data)


def _rsa_of(name: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(SigningKey(name).private.sign(data, PKCS1v15(), SHA256()))


def _hmac_with_the_public_key(data: bytes) -> bytes:
    public = FIRST.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return hmac.digest(public, data, hashlib.sha256)


HEAD = {"alg": "RS256", "kid": "first", "typ": "at+jwt"}
BAD: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "expired": (lambda i: i.token(exp=int(time.time()) - 60), "has expired"),
    "without an end": (lambda i: i.token(exp=None), "lacks one of the claims iss, aud, exp, sub"),
    "with an end that is none": (lambda i: i.token(exp="soon"), "cannot be verified"),
    "not valid yet": (lambda i: i.token(nbf=int(time.time()) + 60), "is not valid yet"),
    "issued tomorrow": (lambda i: i.token(iat=int(time.time()) + 86_400), "is not valid yet"),
    "for another audience": (lambda i: i.token(aud="https://other.example/mcp"), "was not issued for this server"),
    "for no audience": (lambda i: i.token(aud=None), "lacks one of the claims iss, aud, exp, sub"),
    "for an odd audience": (lambda i: forged(HEAD, i.claims(aud=7), _rsa), "was not issued for this server"),
    "of another issuer": (lambda i: i.token(iss="https://evil.example"), "comes from another issuer"),
    "of nearly the issuer": (lambda i: i.token(iss=i.url + "/"), "comes from another issuer"),
    "of no issuer": (lambda i: i.token(iss=None), "lacks one of the claims iss, aud, exp, sub"),
    "of nobody": (lambda i: i.token(sub=None), "lacks one of the claims iss, aud, exp, sub"),
    "of an empty subject": (lambda i: i.token(sub=""), "does not say who its subject and its client are"),
    "of a subject that is no text": (lambda i: forged(HEAD, i.claims(sub=7), _rsa), "cannot be verified"),
    "of a client that is no text": (
        lambda i: i.token(client_id=["a"]),
        "does not say who its subject and its client are",
    ),
    "of a subject that is no Unicode": (
        lambda i: i.token(sub="\ud800"),
        "does not say who its subject and its client are",
    ),
    "of a subject without an end": (
        lambda i: i.token(sub="x" * 2000),
        "has a subject or a client with too long a name",
    ),
    "with an end beyond all numbers": (
        lambda i: forged(HEAD, i.claims(exp=float("inf")), _rsa),
        "cannot be verified",
    ),
    "unsigned": (
        lambda i: forged({"alg": "none"}, i.claims(), lambda _: b""),
        "is signed with an algorithm that is not allowed here",
    ),
    "unsigned, with the head of a good one": (
        lambda i: forged(HEAD, i.claims(), lambda _: b""),
        "has a signature that is not valid",
    ),
    "signed by HMAC with the public key": (
        lambda i: forged(HEAD | {"alg": "HS256"}, i.claims(), _hmac_with_the_public_key),
        "is signed with an algorithm that is not allowed here",
    ),
    "signed by HMAC, called RSA": (
        lambda i: forged(HEAD, i.claims(), _hmac_with_the_public_key),
        "has a signature that is not valid",
    ),
    "signed with an algorithm that is not pinned": (
        lambda i: i.token(alg="RS512"),
        "is signed with an algorithm that is not allowed here",
    ),
    "signed with a key of nobody": (
        lambda i: forged(HEAD, i.claims(), _rsa_of("stranger")),
        "has a signature that is not valid",
    ),
    "under an unknown key id": (
        lambda i: i.token(SigningKey("unknown")),
        "was signed with a key that its issuer does not publish",
    ),
    "with a key in its head": (
        lambda i: i.token(SigningKey("brought"), head={"jwk": SigningKey("brought").jwk()}),
        "was signed with a key that its issuer does not publish",
    ),
    "with a key id that is no text": (lambda i: forged(HEAD | {"kid": 7}, i.claims(), _rsa), "is not a JWT"),
    "with an algorithm that is no text": (
        lambda i: forged(HEAD | {"alg": ["RS256"]}, i.claims(), _rsa),
        "is signed with an algorithm that is not allowed here",
    ),
    "that demands what nobody knows": (
        lambda i: forged(HEAD | {"crit": ["exp"], "exp": 1}, i.claims(), _rsa),
        "is not a JWT",
    ),
    "that demands what is not done here": (
        lambda i: forged(HEAD | {"crit": ["b64"], "b64": True}, i.claims(), _rsa),
        "makes demands that are not known here",
    ),
    "that is an id token": (lambda i: i.token(head={"typ": "id+jwt"}), "is not an access token"),
    "that has an odd type": (lambda i: forged(HEAD | {"typ": [7]}, i.claims(), _rsa), "is not an access token"),
    "that is a logout token": (lambda i: i.token(head={"typ": "logout+jwt"}), "is not an access token"),
    "of no parts": (lambda _: "opaque", "is not a JWT"),
    "of two parts": (lambda i: i.token().rpartition(".")[0], "is not a JWT"),
    "of four parts": (lambda i: i.token() + ".x", "is not a JWT"),
    "with a head that is nested without end": (
        lambda i: forged('{"alg":' + "[" * 3000 + "]" * 3000 + "}", {}, lambda _: b""),
        "is not a JWT",
    ),
    "with a head that is a list": (lambda i: forged("[]", i.claims(), _rsa), "is not a JWT"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_token_is_refused(issuer: Issuer, name: str) -> None:
    make, says = BAD[name]
    token = make(issuer)
    async with door(issuer) as opened:
        with capture_logs() as logs:
            reply = await opened.refuses(token)
        assert reply.refusal == (401, -32600, f"Unauthorized: the token {says}")
        assert reply.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
        assert [line for line in logs if line["log_level"] in ("warning", "error", "critical")] == []
        assert token not in str(logs)
        assert token.encode() not in reply.body
        await opened.admits(issuer.token())


async def test_claims_of_a_good_signature_that_cannot_be_changed_afterwards(issuer: Issuer) -> None:
    head, claims, signature = issuer.token().split(".")
    other = forged(HEAD, json.loads(json.dumps(issuer.claims(sub="grace"))), lambda _: b"").split(".")[1]
    async with door(issuer) as opened:
        for token in (f"{head}.{other}.{signature}", f"{head}.{claims}.{signature[:-8]}AAAAAAAA"):
            assert "a signature that is not valid" in (await opened.refuses(token)).error["message"]
