"""Settings fail closed: what cannot be read or is not known is an error that names it, and nothing is lost."""

from pathlib import Path

import pytest

from lodger_daemon.service.settings import Settings, SettingsError, load_settings, parse_settings
from lodger_daemon.service.settings_file import SettingsFile
from lodger_sandbox.egress.core.presets import Preset
from lodger_tools.permissions.core.modes import Mode


def test_an_unknown_key_is_named_in_words(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[machine]\nnmae = 'laptop'")
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert str(refused.value) == f"{file} is not usable: machine.nmae: there is no such setting"


def test_no_file_means_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "settings.toml") == Settings()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("permissions = 3", "permissions"),
        ("[permissions]\nmode = 'wide'", "permissions.mode"),
        ("[permissions]\ndeny = ['Bash(']", "Bash("),
        ("[permissions]\ndenny = ['Bash']", "permissions.denny"),
        ("[permissions]\nask_every_command = 'no'", "permissions.ask_every_command"),
        ("[providers.x]\nbase_url = 3", "providers.x.base_url"),
        ("[questions]\nexpire_after_s = -1", "questions.expire_after_s"),
        ("[spend]\nday = 5", "spend.day"),
        ("[spend.day]\nusd = 0", "spend.day.usd"),
        ("[spend.day]\nusd = nan", "spend.day.usd"),
        ("[spend.day]\nusd = inf", "spend.day.usd"),
        ("[spend.day]\nusd = '5'", "spend.day.usd"),
        ("[spend.turn]\ntokens = 0", "spend.turn.tokens"),
        ("[spend.turn]\ntokens = true", "spend.turn.tokens"),
        ("[spend.turn]\ntokens = 1.5", "spend.turn.tokens"),
        ("[spend.agents]\ntokens = 1", "spend.agents"),
        ("[spend]\nunknown_price = 'free'", "spend.unknown_price"),
        ("[spend.prices.'openai/x']\ninput = 1", "spend.prices.openai/x.output"),
        ("[spend.prices.'openai/x']\ninput = -1\noutput = 1", "spend.prices.openai/x.input"),
        ("[spend.prices.gpt]\ninput = 1\noutput = 1", "no model handle"),
        ("[network]\nallow = 'example.org'", "network.allow"),
        ("[network]\nallow = ['']", "network.allow"),
        ("[network]\nallow = ['*']", "names no host to allow"),
        ("[network]\nallow = [7]", "network.allow"),
        ("[network]\nallow = ['0.0.0.0/0']", "every address there is"),
        ("[network]\nallowed = []", "network.allowed"),
        ("[oops", "not TOML"),
        ("\udcff", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, names: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert names in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_change_keeps_comments_and_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("# mine\n[permissions]\nmode = 'strict' # careful\n")
    settings = SettingsFile(path).add_allow_rules(["Bash(git status:*)"])
    assert settings.permissions.allow == ("Bash(git status:*)",)
    assert settings.permissions.mode is Mode.STRICT
    assert "# mine" in path.read_text()
    assert "# careful" in path.read_text()
    assert load_settings(path) == settings
    SettingsFile(path).add_allow_rules(["Bash(git status:*)"])
    assert path.read_text().count("git status") == 1


@pytest.mark.parametrize("rule", ["Bash(", ""])
def test_a_bad_change_leaves_the_file_as_it_was(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[permissions]\nmode = 'strict'\n")
    with pytest.raises(SettingsError):
        SettingsFile(path).add_allow_rules([rule])
    assert path.read_text() == "[permissions]\nmode = 'strict'\n"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".settings-")] == []


def test_a_broken_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[permissions\ndeny = ['Bash']")
    with pytest.raises(SettingsError):
        SettingsFile(path).add_allow_rules(["Bash"])
    assert path.read_text() == "[permissions\ndeny = ['Bash']"


def test_the_example_of_the_page_is_usable() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs/settings.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    settings = parse_settings(example.encode(), "the page")
    assert settings.spend.limits().turn.nano_usd == 2_500_000_000
    assert settings.network.presets == tuple(Preset)
    assert settings.spend.own_prices()["mine/large"].base.cached == 100_000
