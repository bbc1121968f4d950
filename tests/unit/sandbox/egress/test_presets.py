"""Hosts in the configuration of a person's tools, from what these tools print."""

import pytest

from lodger_sandbox.egress.core import presets


def texts(*urls: str) -> list[str]:
    return [str(entry) for entry in presets.entries_of(urls)]


def test_an_address_becomes_exactly_its_host_and_port() -> None:
    assert texts("https://Index.Example.org/simple", "http://127.0.0.1:3141/root", "sparse+https://x.test/") == [
        "index.example.org:443",
        "127.0.0.1:3141",
        "x.test:443",
    ]
    assert texts("https://user:secret@mirror.test/simple", "ssh://git@host.test/r", "https://mirror.test/b") == [
        "mirror.test:443",
        "host.test:22",
    ]


@pytest.mark.parametrize(
    "url", ["", "file:///opt/wheels", "/opt/wheels", "https://", "https://127.1/", "https://x.test:99999/", "https://["]
)
def test_what_is_no_host_is_passed_over(url: str) -> None:
    assert texts(url) == []


def test_pip() -> None:
    listed = (
        ":env:.find-links='/opt/wheels'\n"
        "global.index-url='https://a.test/simple'\n"
        "global.extra-index-url='https://b.test/simple\\nhttps://c.test/simple'\n"
        "global.proxy='https://proxy.test'\n"
        "install.trusted-host='d.test'\n"
    )
    assert texts(*presets.pip_urls(listed)) == ["a.test:443", "b.test:443", "c.test:443"]
    assert presets.pip_names_index(listed)
    assert not presets.pip_names_index("global.extra-index-url='https://b.test/simple'\n")


def test_npm() -> None:
    listed = '{"registry": "https://a.test/", "@mine:registry": "https://b.test/n/", "proxy": "https://p.test", "x": 1}'
    assert texts(*presets.npm_urls(listed)) == ["a.test:443", "b.test:443"]
    with pytest.raises(ValueError, match="no object"):
        presets.npm_urls("[]")


def test_git() -> None:
    names = "user.name\0credential.https://a.test.helper\0url.ssh://git@b.test/.insteadof\0core.editor\0"
    assert texts(*presets.git_urls(names)) == ["a.test:443", "b.test:22"]


def test_cargo() -> None:
    config = (
        '[registries.mine]\nindex = "sparse+https://a.test/index/"\n[source.m]\nregistry = "https://b.test/git"\n'
        '[http]\nproxy = "https://p.test"\n'
    )
    assert sorted(texts(*presets.cargo_urls(config))) == ["a.test:443", "b.test:443"]
    used = '{"dl": "https://files.test/crates", "api": "https://api.test"}'
    assert sorted(texts(*presets.cargo_index_urls(used))) == ["api.test:443", "files.test:443"]
    program = b"\0\1sparse+https://i.test/\0sparse+https://i.test/\0sparse+"
    assert texts(*presets.cargo_program_urls(program)) == ["i.test:443"]
    with pytest.raises(ValueError):
        presets.cargo_urls("no = [")
