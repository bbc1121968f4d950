"""F4, D4: a path rule sees where links lead, as the box sees it, and whatever spelling a path has."""

import posixpath
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Verdict
from lodger_tools.toolbox_contract import ToolRequest
from support.real_boxes import workspace_for_tests
from support.tool_room import ToolRoom, closing

HOME = "/home/ada"
NO_SECRETS = RuleSet(deny=(parse_rule("Read(**/.env)"), parse_rule("Read(secrets/**)")))


class Room(ToolRoom):
    async def verdict(self, path: str, *, follow: bool = True) -> Verdict:
        folder = str(self.workspace)
        call = CallToJudge("Read", {"file_path": path}, folder, folder, None)
        if follow:
            request = ToolRequest("k", "Read", {"file_path": path}, self.key, folder)
            call = replace(call, real_path=await self.toolbox.real_path(request))
        return judge(call, NO_SECRETS, Mode.STANDARD, HOME)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    with workspace_for_tests() as workspace:
        (workspace / ".env").write_text("TOKEN=x")
        (workspace / "secrets").mkdir()
        (workspace / "secrets" / "key").write_text("x")
        (workspace / "link").symlink_to(".env")
        (workspace / "second").symlink_to("link")
        (workspace / "folder").symlink_to("secrets")
        (workspace / "absolute").symlink_to(workspace / "secrets" / "key")
        (workspace / "plain").write_text("x")
        async with closing(Room(tmp_path, workspace)) as room:
            yield room


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("path", ["link", "second", "folder/key", "absolute", "./folder/../link", "folder/../.env"])
async def test_f4_a_denied_file_stays_denied_through_links(room: Room, path: str) -> None:
    assert isinstance(await room.verdict(path), Denied)


@pytest.mark.needs("bwrap")
async def test_f4_control_without_following_the_link_passes_and_plain_files_do(room: Room) -> None:
    assert isinstance(await room.verdict("link", follow=False), Allowed)
    assert isinstance(await room.verdict("plain"), Allowed)


DENIED = re.compile(r"/work/(?:.*/)?\.env\Z|/work/secrets/.")
NAMES = st.sampled_from(["a", ".env", "..", ".", "", "secrets", "b.txt"])


@settings(max_examples=300, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6))
def test_every_spelling_of_a_path_gets_the_verdict_of_the_path(names: list[str]) -> None:
    spelled = "/".join(names) or "a"
    plain = posixpath.normpath(posixpath.join("/work", spelled))

    def verdict(path: str) -> type:
        return type(
            judge(CallToJudge("Read", {"file_path": path}, "/work", "/work", None), NO_SECRETS, Mode.STANDARD, HOME)
        )

    assert verdict(spelled) is verdict(plain)
    assert (verdict(spelled) is Denied) is (bool(DENIED.match(plain)))


@pytest.mark.parametrize(
    ("named", "real", "expected"),
    [
        ("/srv/site/a", "/srv/site/a", Allowed),
        ("/srv/site/a", "/srv/other/a", NeedsPerson),
        ("/srv/other/a", "/srv/site/a", NeedsPerson),
        ("/srv/site/a", None, Allowed),
    ],
)
def test_an_allow_rule_needs_both_the_name_and_where_it_leads(named: str, real: str | None, expected: type) -> None:
    rules = RuleSet(allow=(parse_rule("Read(//srv/site/**)"),))
    call = CallToJudge("Read", {"file_path": named}, "/work", "/work", None, real)
    assert type(judge(call, rules, Mode.STANDARD, HOME)) is expected
