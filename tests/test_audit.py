"""The audit tells what it found, and how much it could look at."""

from __future__ import annotations

from tests.audit import findings

SOUND = {"name": "sound", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "unknown", "version": "2.0", "skip_reason": "no advisories"}
FLAWED = {"name": "flawed", "version": "3.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"]}]}


def test_a_vulnerability_is_named_with_what_mends_it() -> None:
    assert findings({"dependencies": [SOUND, FLAWED]}) == [
        "flawed 3.0: PYSEC-1, mended in 3.1",
        "2 of 2 packages were audited, 1 vulnerabilities are known",
    ]


def test_what_could_not_be_audited_is_not_counted_as_sound() -> None:
    assert findings({"dependencies": [SOUND, UNKNOWN]}) == ["1 of 2 packages were audited, 0 vulnerabilities are known"]
