"""The person's settings: one TOML file, read whole or not at all.

A file that cannot be read, or holds a key or value that is not known, stops the program with the line that is wrong:
a default in its place could be wider than what the person wrote.
"""

import os
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lodger_daemon.memory.core.git_addresses import parse_git_address
from lodger_daemon.models.core.providers import split_handle
from lodger_daemon.ports.core.port_rules import PortRule, parse_port_rule
from lodger_daemon.spend.core.limits import NANO_PER_USD, Limits, SpendLimits
from lodger_daemon.spend.core.prices import Price, price_per_million
from lodger_sandbox.egress.core.allow import AllowList, parse_allow_list
from lodger_sandbox.egress.core.presets import Preset
from lodger_tools.permissions.core.judge import RuleSet
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import BadRule, parse_rule

SETTINGS_LIMIT_BYTES = 1024 * 1024


class SettingsError(Exception):
    """The settings file cannot be used; the text names the file, the key and what to do."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class MachineSettings(_Section):
    name: str = ""
    """How clients see this machine; the host name when empty."""
    workspace: str = ""
    """The folder agents work in when nobody names one."""
    box_user: str = "lodger"
    """As root, the system user that boxes run as."""
    box_processors: Annotated[float, Field(ge=0.0, strict=False, allow_inf_nan=False)] = 0.0
    """Each box keeps no more of them busy, where it has a control group; 0: as many as there are."""


class HubSettings(_Section):
    url: str = ""
    """Without one the daemon serves this machine's own clients only."""
    token_file: str = ""
    ca_file: str = ""
    """The one certificate, or authority, that is believed about this hub; the system's when empty. For a hub that made
    its certificate itself."""


class MemorySettings(_Section):
    """Git hosts for memory, as `https://host/path/{agent}.git` or `ssh://user@host/path/{agent}.git`."""

    remote: str = ""
    """Carries memory between machines instead of the hub."""
    mirror: str = ""
    """Gets a copy of each memory's main after each sync."""

    @field_validator("remote", "mirror")
    @classmethod
    def _an_address(cls, address: str) -> str:
        if address:
            parse_git_address(address)
        return address


class ModelSettings(_Section):
    default: str = ""
    """A handle such as `openai/gpt-5`; when empty: a configured key, else a local server, else the practice model."""


class ProviderSettings(_Section):
    base_url: str
    dialect: Literal["openai", "anthropic", "litellm"] = "openai"
    models: tuple[str, ...] = Field(default=(), strict=False)
    context_window: int | None = Field(default=None, ge=1024)


class PermissionSettings(_Section):
    mode: Mode = Field(default=Mode.STANDARD, strict=False)
    """Of a new conversation."""
    ceiling: Mode = Field(default=Mode.UNRESTRICTED, strict=False)
    """The widest mode any client may choose here."""
    ask_every_command: bool = False
    deny: tuple[str, ...] = Field(default=(), strict=False)
    ask: tuple[str, ...] = Field(default=(), strict=False)
    allow: tuple[str, ...] = Field(default=(), strict=False)

    @field_validator("deny", "ask", "allow")
    @classmethod
    def _readable(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        for source in sources:
            try:
                parse_rule(source)
            except BadRule as error:
                raise ValueError(str(error)) from error
        return sources

    def rule_set(self) -> RuleSet:
        return RuleSet(
            deny=tuple(map(parse_rule, self.deny)),
            ask=tuple(map(parse_rule, self.ask)),
            allow=tuple(map(parse_rule, self.allow)),
            ask_every_command=self.ask_every_command,
        )


class QuestionSettings(_Section):
    expire_after_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 1800.0
    """A question nobody answers is denied then, and the turn goes on."""


class ScopeLimits(_Section):
    tokens: int | None = Field(default=None, ge=1, le=10**15)
    usd: float | None = Field(default=None, ge=0.0001, le=1e6, allow_inf_nan=False)

    def limits(self) -> Limits:
        return Limits(self.tokens, round(self.usd * NANO_PER_USD) if self.usd is not None else None)


class ModelPrice(_Section):
    """Dollars for a million tokens; 0 for what costs nothing."""

    input: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    output: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


class SpendSettings(_Section):
    """Reaching a limit stops the turn with a question."""

    turn: ScopeLimits = ScopeLimits()
    agent: ScopeLimits = ScopeLimits()
    """One agent in one day."""
    day: ScopeLimits = ScopeLimits()
    """The whole machine in one day."""
    unknown_price: Literal["ask", "allow"] = "ask"
    """What a money limit means for a model whose price is not known."""
    prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """By handle; they win over the table that comes with the program."""

    def limits(self) -> SpendLimits:
        return SpendLimits(
            self.turn.limits(), self.agent.limits(), self.day.limits(), unpriced_allowed=self.unknown_price == "allow"
        )

    def own_prices(self) -> dict[str, Price]:
        return {
            handle: price_per_million(price.input, price.output, price.cached_input, price.cache_write)
            for handle, price in self.prices.items()
        }

    @field_validator("prices")
    @classmethod
    def _handles(cls, prices: dict[str, ModelPrice]) -> dict[str, ModelPrice]:
        for handle in prices:
            if not all(split_handle(handle)):
                raise ValueError(f"{handle!r} is no model handle such as openai/gpt-5")
        return prices


class ShellSettings(_Section):
    foreground_s: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 10.0
    """A command that runs longer goes on in the background; 0 = only one that asks for it (BEHAVIOUR.md C5)."""


class NetworkSettings(_Section):
    """What programs in boxes may reach without asking."""

    allow: tuple[str, ...] = Field(default=(), strict=False)
    """`example.org`, `*.example.org:443`, `10.0.0.0/8:5432`, `[fd00::1]:22`; without a port 80 and 443. An empty list
    lets nothing out."""

    presets: tuple[Annotated[Preset, Field(strict=False)], ...] = Field(default=(), strict=False)
    """Also what these tools of the person are configured to use: `pip`, `npm`, `cargo`, `git`."""

    ssh_agent: bool = False
    """Programs in boxes may log in and sign with the keys of the person's ssh agent."""

    @field_validator("allow")
    @classmethod
    def _meaningful(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        parse_allow_list(entries)
        return entries

    def allow_list(self) -> AllowList:
        return parse_allow_list(self.allow)


class PortSettings(_Section):
    """Ports that programs in boxes listen at."""

    ask: bool = True
    """Off: nobody is asked; `lodger ports open` opens one."""
    open: tuple[str, ...] = Field(default=(), strict=False)
    """Opened without asking: `5173 in /home/me/site`, or `5173` in every folder."""

    @field_validator("open")
    @classmethod
    def _meaningful(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            parse_port_rule(rule)
        return rules

    def rules(self) -> tuple[PortRule, ...]:
        return tuple(map(parse_port_rule, self.open))


class AuditSettings(_Section):
    """How much of the audit log is kept; its oldest rows go first, and none of a turn that is still open."""

    keep_days: int = Field(default=365, ge=1, le=36_500)
    keep_rows: int = Field(default=200_000, ge=1_000, le=10**8)


class Settings(_Section):
    machine: MachineSettings = MachineSettings()
    hub: HubSettings = HubSettings()
    memory: MemorySettings = MemorySettings()
    model: ModelSettings = ModelSettings()
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    permissions: PermissionSettings = PermissionSettings()
    questions: QuestionSettings = QuestionSettings()
    spend: SpendSettings = SpendSettings()
    shell: ShellSettings = ShellSettings()
    network: NetworkSettings = NetworkSettings()
    ports: PortSettings = PortSettings()
    audit: AuditSettings = AuditSettings()


def load_settings(path: Path) -> Settings:
    """Read the file; defaults only when there is none. Blocking. Raises: SettingsError."""
    try:
        content = _read_limited(path)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read ({error.strerror}): mend its permissions or move it away"
        ) from error
    if len(content) > SETTINGS_LIMIT_BYTES:
        raise SettingsError(f"{path} is larger than {SETTINGS_LIMIT_BYTES} bytes: that is no settings file")
    return parse_settings(content, str(path))


def _read_limited(path: Path) -> bytes:
    """Raises: OSError; SettingsError for what would never end or never begin."""
    # A pipe would hold up the start until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SettingsError(f"{path} is no plain file; move it away")
        return file.read(SETTINGS_LIMIT_BYTES + 1)


def parse_settings(content: bytes, source: str) -> Settings:
    """Raises: SettingsError, naming each wrong key."""
    try:
        data = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{source} is not TOML: {error}. Mend that line, or move the file away") from error
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: "
            + ("there is no such setting" if fault["type"] == "extra_forbidden" else fault["msg"]).removeprefix(
                "Value error, "
            )
            for fault in error.errors()
        )
        raise SettingsError(f"{source} is not usable: {faults}") from error
