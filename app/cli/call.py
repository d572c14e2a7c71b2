"""`perdure call`: calls a tool as a client would, shows how it gets on, and asks the user what it asks."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from app.cli.caller import HERE, Caller


def call(
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", show_default=False, help="Its name.")] = None,
    arg: Annotated[
        list[str],
        typer.Option("--arg", metavar="NAME=VALUE", help="An argument: JSON where the tool takes no text. Repeatable."),
    ] = [],  # noqa: B006
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Arguments, as a JSON object.")] = None,
    url: Annotated[str, typer.Option("--url", metavar="URL", envvar="PERDURE_URL", help="The service.")] = HERE,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", envvar="PERDURE_TOKEN", show_default=False, help="Says who calls."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="Take up a task that exists, instead of calling a tool.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, the last state of the task, and nothing else.")
    ] = False,
) -> None:
    """Call a tool, show how it gets on, ask what it asks, and print its result.

    Exits with 0 when it completed, 1 when the tool says that it failed or the task did, 2 when there is no answer,
    3 when the task was cancelled, 4 when it asks something and nobody is there to answer, and 130 after Ctrl-C.
    """
    if (tool is None) is (task is None):
        raise typer.BadParameter("give the name of a tool, or --task with the id of a task")
    if task is not None and (arg or args is not None):
        raise typer.BadParameter("--task takes no arguments: the task has them")
    with asyncio.Runner() as runner, Caller(runner, url, token, as_json=as_json) as caller:
        raise typer.Exit(caller.take_up(task) if tool is None else caller.call(tool, arg, args))
