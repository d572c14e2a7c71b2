"""The pages from another machine, as docs/ui.md says: by SSH, without opening the port to a network."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.settings import Settings
from tests.http.ui.desks import PASSWORD
from tests.support.command import perdure
from tests.support.pages import shell, span, spans
from tests.support.scraped import is_ready, ops_url
from tests.support.waiting import eventually

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
    ProxyCommand nsenter --net={here} {sshd} -i -f {folder}/sshd_config
    IdentityFile {folder}/key
    IdentitiesOnly yes
    BatchMode yes
    StrictHostKeyChecking accept-new
    UserKnownHostsFile {folder}/known_hosts
"""


@contextmanager
def other_machine() -> Iterator[list[str]]:
    """A network without anything in it; what makes a command run there."""
    name = f"perdure-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)  # noqa: S607
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)  # noqa: S607
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)  # noqa: S607


def write_ssh(folder: Path, ssh: str, sshd: str) -> None:
    """Make a `ssh` that knows this machine, with a server of its own, by the name of `host`."""
    for key in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)  # noqa: S607
    Path("/run/sshd").mkdir(exist_ok=True)  # the server wants it, and an init system makes it
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    (folder / "config").write_text(CLIENT.format(folder=folder, here=f"/proc/{os.getpid()}/ns/net", sshd=sshd))
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {shlex.quote(str(folder / "config"))} "$@"\n')
    (folder / "ssh").chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to make a network")
async def test_the_pages_are_reached_from_another_machine_by_the_command_that_the_docs_name(
    db_url: str, tmp_path: Path, find_program: Callable[[str], str]
) -> None:
    write_ssh(tmp_path, find_program("ssh"), find_program("sshd"))
    [address] = [each for each in spans(PAGE) if each.startswith("http://127.0.0.1:")]
    settings = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": str(Settings().ops_port), "PERDURE_UI_PASSWORD": PASSWORD}
    with (
        perdure(tmp_path / "serve", "serve", "--port", "0", **settings) as serve,
        other_machine() as there,
    ):
        await is_ready(await asyncio.to_thread(ops_url, serve))

        async def ask() -> subprocess.CompletedProcess[str]:
            curl = [*there, "curl", "--silent", "--location", address]
            return await asyncio.to_thread(subprocess.run, curl, capture_output=True, text=True, check=False)

        assert (await ask()).returncode == REFUSED
        terminal = "exec < <(exec sleep infinity)"  # somebody sits there
        command = f"{terminal}\n{shlex.join(there)} {span(PAGE, 'ssh ')}"
        with shell(tmp_path, command, PATH=f"{tmp_path}:{os.environ['PATH']}") as ssh:

            async def reached() -> bool:
                assert ssh.process.poll() is None, ssh.err
                page = await ask()
                return page.returncode == 0 and "Password" in page.stdout

            await eventually(reached)
