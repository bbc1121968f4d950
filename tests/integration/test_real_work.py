"""What a developer does all day, in boxes as the daemon makes them: its own policy, guard, network and broker."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.service.settings import NetworkSettings
from support.developer import Developer
from support.package_hosts import PackageHosts, package_hosts
from support.real_boxes import box_user_for_tests, workspace_for_tests
from support.sandbox_users import own

pytestmark = pytest.mark.needs("bwrap")


class PackageDeveloper(Developer):
    def __init__(self, state: Path, workspace: Path, hosts: PackageHosts) -> None:
        super().__init__(state, workspace, NetworkSettings(allow=(hosts.host,)))
        self.hosts = hosts


@pytest.fixture
async def developer(tmp_path: Path) -> AsyncIterator[PackageDeveloper]:
    repositories = tmp_path / "repositories"
    upstream = repositories / "project.git"
    for words in (
        ("init", "-q", "--bare", "-b", "main", str(upstream)),
        ("init", "-q", "-b", "main", str(tmp_path / "first")),
    ):
        subprocess.run(("git", *words), check=True)  # noqa: ASYNC221 - before anything runs
    first = ("git", "-C", str(tmp_path / "first"), "-c", "user.name=Ada", "-c", "user.email=a@b.example")
    for words in (("commit", "-q", "--allow-empty", "-m", "first"), ("push", "-q", str(upstream), "main")):
        subprocess.run((*first, *words), check=True)  # noqa: ASYNC221
    with workspace_for_tests() as workspace, package_hosts(repositories) as hosts:
        made = PackageDeveloper(tmp_path / "daemon", workspace, hosts)
        await made.start()
        yield made
        await made.aclose()


async def test_git_from_clone_to_push_with_branch_tracking(developer: PackageDeveloper) -> None:
    url = f"{developer.hosts.url}/git/project.git"
    subprocess.run(("git", "init", "-q", "-b", "main", str(developer.workspace)), check=True)  # noqa: ASYNC221
    with (developer.workspace / ".git/config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
    own(developer.workspace, box_user_for_tests())
    said = await developer.does(
        "git config user.name Ada && git config user.email a@b.example\n"
        "git fetch -q origin && git checkout -q -B main origin/main\n"
        "git switch -q -c topic && echo text > file && git add file && git commit -q -m second\n"
        "git push -q -u origin topic\n"
        "git status -sb && git stash list && git tag v1 && git push -q origin v1\n"
        "git switch -q main && git merge -q topic && git branch -d topic"
    )
    assert "## topic...origin/topic" in said
    assert "put back" not in said
    refs = subprocess.run(  # noqa: ASYNC221
        ("git", "-C", str(developer.hosts.repositories / "project.git"), "for-each-ref", "--format=%(refname)"),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert refs.split() == ["refs/heads/main", "refs/heads/topic", "refs/tags/v1"]


async def test_git_clone_into_a_folder_of_the_workspace(developer: PackageDeveloper) -> None:
    said = await developer.does(
        f"git clone -q {developer.hosts.url}/git/project.git cloned && git -C cloned log --oneline"
    )
    assert "first" in said
    assert "New git repositories" in said and "cloned" in said


async def test_pip_install_from_an_index(developer: PackageDeveloper) -> None:
    said = await developer.does(
        f"{sys.base_prefix}/bin/python3 -m venv env\n"
        f"env/bin/pip install -q --disable-pip-version-check --index-url {developer.hosts.url}/simple greeting\n"
        "env/bin/python -c 'import greeting; print(greeting.WORDS)'"
    )
    assert "hello from the index" in said


@pytest.mark.needs("npm")
async def test_npm_ci_from_a_registry(developer: PackageDeveloper) -> None:
    developer.writes("package.json", '{"name": "app", "dependencies": {"greeting": "1.0.0"}}')
    developer.writes("package-lock.json", developer.hosts.lock_file())
    said = await developer.does(
        f"npm ci --no-audit --no-fund --registry {developer.hosts.url}/npm/ >/dev/null\n"
        "node -e 'console.log(require(\"greeting\"))'"
    )
    assert "hello from the registry" in said


async def test_pytest(developer: PackageDeveloper) -> None:
    developer.writes("test_sum.py", "def test_sum(tmp_path):\n    assert 1 + 1 == 2\n")
    assert "1 passed" in await developer.does(f"{sys.executable} -m pytest -q -p no:cacheprovider test_sum.py")


@pytest.mark.needs("gcc", "make")
async def test_make_with_gcc(developer: PackageDeveloper) -> None:
    developer.writes("main.c", '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n')
    developer.writes("Makefile", "main: main.o\n\tgcc -o $@ $<\n%.o: %.c\n\tgcc -c -o $@ $<\n")
    assert "built" in await developer.does("make -s -j2 && ./main")


@pytest.mark.needs("node")
async def test_node_with_a_server_of_its_own(developer: PackageDeveloper) -> None:
    developer.writes(
        "server.mjs",
        'import http from "node:http";\n'
        'const server = http.createServer((_, answer) => answer.end("served")).listen(0, "127.0.0.1", async () => {\n'
        "  const found = await fetch(`http://127.0.0.1:${server.address().port}/`);\n"
        "  console.log(await found.text());\n"
        "  server.close();\n"
        "});\n",
    )
    assert "served" in await developer.does("node server.mjs")
