"""Which changes of `.git/config` are everyday work, and which have to be asked about."""

import subprocess

import pytest

from lodger_sandbox.core.git_config import UnreadableListing, parse_listing, refused_changes, tracked

ORIGIN = {
    "core.bare": ("false",),
    "remote.origin.url": ("https://code.example/a/b.git",),
    "remote.origin.fetch": ("+refs/heads/*:refs/remotes/origin/*",),
    "branch.main.remote": ("origin",),
    "branch.main.merge": ("refs/heads/main",),
}


def listed(text: str) -> dict[str, tuple[str, ...]]:
    """As git itself reads it."""
    command = ("git", "config", "--file", "-", "--list", "-z", "--no-includes")
    return parse_listing(subprocess.run(command, input=text.encode(), check=True, capture_output=True).stdout)


def refused(more: str) -> tuple[str, ...]:
    after = listed(more)
    return refused_changes(ORIGIN, {**ORIGIN, **after}, {})


@pytest.mark.parametrize(
    "change",
    [
        "[user]\nname = Ada\nemail = a@b.example",
        '[remote "up"]\nurl = https://code.example/x/y.git\nfetch = +refs/heads/*:refs/remotes/up/*',
        '[remote "up"]\nurl = git@code.example:x/y.git\n[branch "new"]\nremote = up\nmerge = refs/heads/new',
        '[branch "topic"]\nremote = origin\nmerge = refs/heads/topic\nrebase = true',
        '[branch "topic"]\nremote = .\nmerge = refs/heads/main',
        "[pull]\nrebase = true\n[core]\nautocrlf = input",
    ],
)
def test_everyday_work_is_harmless(change: str) -> None:
    assert refused(change) == ()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("[core]\nfsmonitor = ./x", "core.fsmonitor"),
        ("[core]\nhooksPath = ../h", "core.hookspath"),
        ("[core]\nsshCommand = x", "core.sshcommand"),
        ("[core]\npager = x", "core.pager"),
        ("[core]\neditor = x", "core.editor"),
        ("[core]\ngitProxy = x", "core.gitproxy"),
        ("[core]\nworktree = /", "core.worktree"),
        ("[core]\naskPass = x", "core.askpass"),
        ("[core]\nattributesFile = x", "core.attributesfile"),
        ('[alias]\nst = "!x"', "alias.st"),
        ('[filter "f"]\nclean = x', "filter.f.clean"),
        ('[diff "d"]\ntextconv = x', "diff.d.textconv"),
        ("[diff]\nexternal = x", "diff.external"),
        ('[merge "m"]\ndriver = x', "merge.m.driver"),
        ("[credential]\nhelper = x", "credential.helper"),
        ('[url "https://evil.example/"]\ninsteadOf = https://', "url.https://evil.example/.insteadof"),
        ("[include]\npath = x", "include.path"),
        ('[includeIf "gitdir:/"]\npath = x', "includeif.gitdir:/.path"),
        ("[gpg]\nprogram = x", "gpg.program"),
        ('[gpg "ssh"]\ndefaultKeyCommand = x', "gpg.ssh.defaultkeycommand"),
        ("[sequence]\neditor = x", "sequence.editor"),
        ("[uploadpack]\npackObjectsHook = x", "uploadpack.packobjectshook"),
        ('[protocol "ext"]\nallow = always', "protocol.ext.allow"),
        ("[http]\nproxy = http://evil.example", "http.proxy"),
        ("[http]\nsslVerify = false", "http.sslverify"),
        ("[extensions]\nworktreeConfig = true", "extensions.worktreeconfig"),
        ("[interactive]\ndiffFilter = x", "interactive.difffilter"),
        ('[pager]\nlog = "x"', "pager.log"),
        ('[mergetool "m"]\ncmd = x', "mergetool.m.cmd"),
        ("[sendemail]\nsmtpServer = /x", "sendemail.smtpserver"),
        ('[trailer "t"]\ncommand = x', "trailer.t.command"),
        ('[submodule "s"]\nupdate = !x', "submodule.s.update"),
        ("[init]\ntemplateDir = x", "init.templatedir"),
        ('[remote "origin"]\nurl = https://evil.example/', "remote.origin.url"),
        ('[remote "origin"]\npushurl = https://evil.example/', "remote.origin.pushurl"),
        ('[remote "origin"]\nuploadpack = x', "remote.origin.uploadpack"),
        ('[remote "up"]\nreceivepack = x', "remote.up.receivepack"),
        ('[remote "up"]\nvcs = x', "remote.up.vcs"),
        ('[remote "up"]\nurl = "ext::sh -c x"', "remote.up.url"),
        ('[remote "up"]\nurl = ../evil', "remote.up.url"),
        ('[remote "up"]\nurl = file:///evil', "remote.up.url"),
        ('[remote "up"]\nurl = --upload-pack=x', "remote.up.url"),
        ('[remote "up"]\nurl = ssh://-oProxyCommand=x/', "remote.up.url"),
        ('[remote "up"]\nfetch = refs/heads/*:refs/heads/*', "remote.up.fetch"),
        ("[remote]\npushDefault = up", "remote.pushdefault"),
        ('[branch "main"]\nremote = up\n[remote "up"]\nurl = https://evil.example/', "branch.main.remote"),
        ('[branch "main"]\npushRemote = up', "branch.main.pushremote"),
        ('[branch "new"]\nremote = ../evil', "branch.new.remote"),
        ('[branch "new"]\nremote = https://evil.example/', "branch.new.remote"),
        ("[some]\nthing = new", "some.thing"),
    ],
)
def test_what_runs_programs_or_leads_elsewhere_is_refused(change: str, key: str) -> None:
    assert refused(change) == (key,)


def test_taking_a_remote_away_is_refused() -> None:
    without = {key: values for key, values in ORIGIN.items() if not key.startswith("remote.")}
    assert refused_changes(ORIGIN, without, {}) == ("remote.origin.fetch", "remote.origin.url")


def test_a_deleted_branch_takes_its_settings_along() -> None:
    assert refused_changes(ORIGIN, {k: v for k, v in ORIGIN.items() if not k.startswith("branch.")}, {}) == ()


def test_a_branch_is_not_led_elsewhere_in_two_steps() -> None:
    between = {k: v for k, v in ORIGIN.items() if not k.startswith("branch.")}
    up = {"remote.up.url": ("https://evil.example/",), "branch.main.remote": ("up",)}
    assert refused_changes(between, {**between, **up}, tracked(ORIGIN)) == ("branch.main.remote",)
    assert refused_changes(between, {**between, "branch.main.remote": ("origin",)}, tracked(ORIGIN)) == ()


def test_a_new_remote_takes_no_name_that_branches_push_to() -> None:
    before = {"branch.main.remote": ("gone",)}
    after = {**before, "remote.gone.url": ("https://evil.example/",)}
    assert refused_changes(before, after, {}) == ("remote.gone.url",)


def test_a_second_value_is_a_change() -> None:
    assert refused_changes(
        ORIGIN, {**ORIGIN, "remote.origin.url": (*ORIGIN["remote.origin.url"], "https://e.example/")}, {}
    )


def test_a_cut_listing_is_not_read() -> None:
    with pytest.raises(UnreadableListing):
        parse_listing(b"user.name\nAda")
