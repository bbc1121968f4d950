"""The machine's own secrets are known for redaction, whatever their source, and nothing else is."""

from pathlib import Path

from lodger_daemon.paths import find_paths
from lodger_daemon.service.own_secrets import OwnSecrets


def test_tokens_and_keys_of_the_environment_are_known(tmp_path: Path) -> None:
    paths = find_paths({"LODGER_HOME": str(tmp_path), "HOME": str(tmp_path)})
    paths.hub.mkdir(parents=True)
    (paths.hub / "client.token").write_text("client-token-1\n")
    elsewhere = tmp_path / "elsewhere.token"
    elsewhere.write_text("machine-token-1\n")
    environment = {"OPENAI_API_KEY": "sk-1", "LANG": "C.UTF-8", "GITHUB_TOKEN": "gh-1", "EMPTY_TOKEN": ""}
    assert dict(OwnSecrets(paths, environment, elsewhere).values()) == {
        "OPENAI_API_KEY": "sk-1",
        "GITHUB_TOKEN": "gh-1",
        "LODGER_HUB_CLIENT_TOKEN": "client-token-1",
        "LODGER_HUB_MACHINE_TOKEN": "machine-token-1",
    }
