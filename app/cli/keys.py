"""`perdure keys`: API keys, for PERDURE_AUTH=keys."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.errors import SettingsError
from app.http.auth.api_keys import line, new_key

keys = typer.Typer(help="API keys, for PERDURE_AUTH=keys.", no_args_is_help=True)


@keys.command("new")
def new(
    owner: Annotated[str, typer.Argument(help="Whom the key is for: what is created with it belongs to them.")],
    scope: Annotated[list[str], typer.Option("--scope", help="What it may do; may be given again.")] = [],  # noqa: B006
) -> None:
    """Make a key. It is printed once and kept nowhere; only its line, which holds a hash, goes to the server."""
    key = new_key()
    try:
        entry = line(owner, key, tuple(scope))
    except SettingsError:
        raise SettingsError(
            "No such key can be made: an owner is one word of up to 256 ASCII characters, a scope is one word too, "
            "and neither holds a comma or #"
        ) from None
    print("The key, for the client, as Authorization: Bearer …", file=sys.stderr)
    print(key)
    print("\nIts line, for PERDURE_API_KEYS or the file that PERDURE_API_KEYS_FILE names", file=sys.stderr)
    print(entry)
