"""What of the host's shared folders a box does not see, and what of the person's home it does.

The home is empty but for this list. A list of secrets to hide would never be complete: the view of the host is live,
and an ~/.aws made tomorrow would escape a list made today (SANDBOX-NOTES.md section 3).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class HomeEntry:
    name: str
    why: str


HOME_ALLOWLIST: Final = (
    HomeEntry(".cargo/bin", "cargo and rustc; not ~/.cargo itself, which holds credentials.toml"),
    HomeEntry(".rustup", "Rust toolchains"),
    HomeEntry(".nvm", "node versions and the nvm script"),
    HomeEntry(".volta/bin", "node through volta"),
    HomeEntry(".volta/tools", "node through volta"),
    HomeEntry(".pyenv", "Python versions"),
    HomeEntry(".rbenv", "Ruby versions"),
    HomeEntry(".sdkman/candidates", "Java versions"),
    HomeEntry(".asdf", "tool versions through asdf"),
    HomeEntry(".local/share/mise/installs", "tool versions through mise"),
    HomeEntry(".local/share/uv/python", "Python versions through uv"),
    HomeEntry(".local/share/uv/tools", "programs installed with uv; ~/.local/bin points here"),
    HomeEntry(".local/pipx", "programs installed with pipx; ~/.local/bin points here"),
    HomeEntry(".local/share/pipx", "programs installed with pipx; ~/.local/bin points here"),
    HomeEntry(".local/bin", "the person's own programs"),
    HomeEntry(".local/lib", "Python packages installed for this user; ~/.local/bin needs them"),
    HomeEntry(".deno/bin", "deno"),
    HomeEntry(".bun/bin", "bun"),
    HomeEntry("go/bin", "programs installed with go"),
    HomeEntry(".config/git/ignore", "what git leaves alone"),
    HomeEntry(".ssh/known_hosts", "which servers are who they say; keys stay outside"),
    HomeEntry(".editorconfig", "indentation rules"),
    HomeEntry(".tool-versions", "versions asdf and mise pick"),
)
"""Read-only. Nothing here holds a secret by its own design: no ~/.npmrc, ~/.pypirc, ~/.netrc, ~/.config/gh, and of
~/.ssh neither keys nor config. Nor ~/.gitconfig: people have tokens in its addresses, and programs in its aliases and
helpers; the daemon writes what is harmless of it into a box."""

VEILED: Final = (
    "/home",
    "/root",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/incus",
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/snap",
    "/var/spool",
)
"""Other people's homes, and folders where services keep Unix sockets or jobs: a read-only bind does not stop
`connect()` to a socket in a visible folder. A folder named here can still hold the workspace."""

PRIVATE_RUN: Final = "/run"
PRIVATE_SHARED: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - covered, not used
