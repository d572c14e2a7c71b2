"""The pages from another machine, as docs/ui.md says: by SSH, without opening the port to a network."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.settings import Settings
from tests.cli.test_cli import reachable_folder
from tests.http.ui.desks import PASSWORD
from tests.support.pages import shell, span, spans
from tests.support.waiting import eventually

__all__ = ["reachable_folder"]

PAGE = "docs/ui.md"
REFUSED = 7
"""How curl ends where nobody listens."""
SERVER = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PidFile none
"""
CLIENT = """
Host host
    ProxyCommand {host} {sshd} -i -f {folder}/sshd_config
    IdentityFile {folder}/key
    IdentitiesOnly yes
    BatchMode yes
    StrictHostKeyChecking accept-new
    UserKnownHostsFile {folder}/known_hosts
"""


@contextmanager
def machine(name: str) -> Iterator[list[str]]:
    """A network of its own with nothing in it; what makes a command run there."""
    network = f"perdure-{os.getpid()}-{name}"
    subprocess.run(["ip", "netns", "add", network], check=True)  # noqa: S607
    try:
        subprocess.run(["ip", "-n", network, "link", "set", "lo", "up"], check=True)  # noqa: S607
        yield ["ip", "netns", "exec", network]
    finally:
        subprocess.run(["ip", "netns", "delete", network], check=True)  # noqa: S607


def write_ssh(folder: Path, host: list[str], ssh: str, sshd: str) -> None:
    """Make a `ssh` that knows a machine by the name of `host`, and starts the server there that answers it."""
    for key in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)  # noqa: S607
    Path("/run/sshd").mkdir(exist_ok=True)  # the server wants it, and an init system makes it
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    (folder / "config").write_text(CLIENT.format(folder=folder, host=shlex.join(host), sshd=sshd))
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {shlex.quote(str(folder / "config"))} "$@"\n')
    (folder / "ssh").chmod(0o755)


async def ask(on: list[str]) -> subprocess.CompletedProcess[str]:
    """Open the page's address on a machine."""
    [address] = [each for each in spans(PAGE) if each.startswith("http://127.0.0.1:")]
    curl = [*on, "curl", "--silent", "--location", address]
    return await asyncio.to_thread(subprocess.run, curl, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to make a network")
async def test_the_pages_are_reached_from_another_machine_by_the_command_that_the_docs_name(
    reachable_folder: Path, tmp_path: Path, find_program: Callable[[str], str]
) -> None:
    ssh, sshd = find_program("ssh"), find_program("sshd")
    settings = {
        "PERDURE_DATA_DIR": str(reachable_folder / "data"),
        "PERDURE_OPS_PORT": str(Settings().ops_port),
        "PERDURE_UI_PASSWORD": PASSWORD,
    }
    (tmp_path / "host").mkdir()
    with (
        machine("host") as host,
        machine("here") as here,
        shell(tmp_path / "host", shlex.join([*host, "perdure", "dev", "--tools", "app.examples"]), **settings) as dev,
    ):
        write_ssh(tmp_path, host, ssh, sshd)
        await asyncio.to_thread(dev.says, "worker started")
        assert "Password" in (await ask(host)).stdout
        assert (await ask(here)).returncode == REFUSED
        terminal = "exec < <(exec sleep infinity)"  # somebody sits there
        command = f"{terminal}\n{shlex.join(here)} {span(PAGE, 'ssh ')}"
        with shell(tmp_path, command, PATH=f"{tmp_path}:{os.environ['PATH']}") as tunnel:

            async def reached() -> bool:
                assert tunnel.process.poll() is None, tunnel.err
                return "Password" in (await ask(here)).stdout

            await eventually(reached)
