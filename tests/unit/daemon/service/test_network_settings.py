"""N1 for every list a person may write: it means exactly what it says, or the settings do not load and say why.

What a list means is worked out here a second time, from how it was made and not from its text.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

import pytest
import tomlkit

from lodger_daemon.service.settings import SettingsError, load_settings
from lodger_sandbox.egress.core.allow import AllowList, Pass
from lodger_sandbox.egress.core.hosts import parse_destination

FIXED_SEEDS = range(150)
FRESH_SEEDS = 150
WORDS = ("example", "docs", "a", "x1", "a-b", "a_b", "xn--bcher-kva", "7seas")
TOPS = ("org", "test", "xn--wgv71a", "c0m")
INTERNATIONAL = {"xn--bcher-kva": ("bücher", "BÜCHER", "bu\u0308cher"), "xn--wgv71a": ("日本",)}
WEB = frozenset({80, 443})


def seeds() -> Iterator[int]:
    """Always the same ones first, so that what was found once is found again."""
    yield from FIXED_SEEDS
    first = random.SystemRandom().randrange(10**6, 10**9)
    yield from range(first, first + FRESH_SEEDS)


def written(folder: Path, allow: object) -> Path:
    path = folder / "settings.toml"
    path.write_text(tomlkit.dumps({"network": {"allow": allow}}), "utf-8")
    return path


# -- what is meant, and the ways to write it --


@dataclass(frozen=True)
class Meant:
    host: str | IPv4Network | IPv6Network
    below: bool
    ports: frozenset[int]

    def holds(self, host: str | IPv4Address | IPv6Address, port: int) -> bool:
        if port not in self.ports:
            return False
        if isinstance(self.host, str):
            labels, own = str(host).split("."), self.host.split(".")
            if not isinstance(host, str):
                return False
            return labels[-len(own) :] == own and len(labels) > len(own) if self.below else labels == own
        if isinstance(host, str) or host.version != self.host.version:
            return False
        return int(host) ^ int(self.host.network_address) < 2 ** (host.max_prefixlen - self.host.prefixlen)


def some_name(rng: random.Random) -> str:
    return ".".join((*(rng.choice(WORDS) for _ in range(rng.randrange(1, 4))), rng.choice(TOPS)))


def some_ipv6(rng: random.Random) -> IPv6Address:
    """Of those that stand for no IPv4 address."""
    return IPv6Address((rng.choice((0x2600, 0x2A00, 0xFD00, 0xFE80)) << 112) | rng.getrandbits(112))


def spelled_name(rng: random.Random, name: str) -> str:
    # A name with an underscore is none that can be written in another script.
    others = {} if "_" in name else INTERNATIONAL
    labels = [rng.choice((label, *others.get(label, ()))) for label in name.split(".")]
    text = rng.choice(".。") if not ".".join(labels).isascii() else "."
    whole = text.join(labels)
    return rng.choice((whole, whole.upper(), whole.title())) + rng.choice(("", "", "."))


def spelled_network(rng: random.Random, network: IPv4Network | IPv6Network) -> str:
    address = network.network_address
    text = rng.choice((str(address), address.exploded, str(address).upper()))
    if network.prefixlen < network.max_prefixlen or rng.random() < 0.2:
        text += f"/{network.prefixlen}"
    elif isinstance(address, IPv4Address) and rng.random() < 0.5:
        text = f"[::ffff:{address}]"
    return text if address.version == 4 else f"[{text}]"


def some_entry(rng: random.Random) -> tuple[Meant, str]:
    port = rng.choice((None, 80, 443, 22, 1, 65535))
    ports, tail = (WEB, "") if port is None else (frozenset({port}), f":{port}")
    match rng.randrange(4):
        case 0:
            name = some_name(rng)
            return Meant(name, True, ports), f"*.{spelled_name(rng, name)}{tail}"
        case 1:
            network: IPv4Network | IPv6Network = ip_network((rng.getrandbits(32), rng.randrange(1, 33)), strict=False)
            return Meant(network, False, ports), spelled_network(rng, network) + tail
        case 2:
            network = ip_network((int(some_ipv6(rng)), rng.randrange(16, 129)), strict=False)
            return Meant(network, False, ports), spelled_network(rng, network) + tail
        case _:
            name = some_name(rng)
            return Meant(name, False, ports), spelled_name(rng, name) + tail


def near(rng: random.Random, meant: Meant) -> Iterator[str | IPv4Address | IPv6Address]:
    """Hosts on both sides of the edge of what is meant."""
    if isinstance(meant.host, str):
        name = meant.host
        yield from (name, f"a.{name}", f"a.b.{name}", f"evil{name}", f"{name}.evil.test", name.partition(".")[2], "org")
        yield from (name.replace(".", "-") + ".org", str(ip_address(rng.getrandbits(32))).replace(".", "-") + ".test")
        return
    first, last = int(meant.host.network_address), int(meant.host.broadcast_address)
    kind = IPv4Address if meant.host.version == 4 else IPv6Address
    top = 2**meant.host.max_prefixlen - 1
    yield from (kind(number) for number in {first, last, max(0, first - 1), min(top, last + 1), (first + last) // 2})


@pytest.mark.timeout(120)
def test_a_list_lets_through_exactly_what_it_says(tmp_path: Path) -> None:
    for seed in seeds():
        rng = random.Random(seed)
        made = [some_entry(rng) for _ in range(rng.randrange(6))]
        allow = load_settings(written(tmp_path, [text for _, text in made])).network.allow_list()
        assert isinstance(allow, AllowList)
        for meant, _ in made or [some_entry(rng)]:
            for host in near(rng, meant):
                for port in (*meant.ports, rng.randrange(1, 65536)):
                    shown = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
                    verdict = allow.judge(parse_destination(f"{shown}:{port}"))
                    wanted = any(one.holds(host, port) for one, _ in made)
                    assert isinstance(verdict, Pass) is wanted, (seed, shown, port, [text for _, text in made])


# -- what means nothing --

Bad = Callable[[random.Random], str]


def _v4(rng: random.Random) -> str:
    return str(IPv4Address(rng.getrandbits(32) | 1 << 24))


def _v6(rng: random.Random) -> str:
    return str(some_ipv6(rng))


def _after(host: Callable[[random.Random], str], tails: str) -> list[Bad]:
    return [lambda rng, tail=tail: host(rng) + tail for tail in tails.split("|")]  # type: ignore[misc]


def _around(host: Callable[[random.Random], str], forms: str) -> list[Bad]:
    return [lambda rng, form=form: form.replace("@@", host(rng)) for form in forms.split("|")]  # type: ignore[misc]


PORTS = (
    ":|:0|:00443|:0443|:65536|:99999|:+443|:-1|:443.0|:https|:443:443|"
    ":\uff14\uff14\uff13|: 443|:443 |:1e3|:0x50|:80-90|:80,443|:*"
)
NAMES = (
    "https://@@|//@@|@@/|@@/path|user@@@|user:word@@@|@@ |\t@@|@@\n|@@\0|@@\0.evil.test|@@,evil.test|@@ evil.test|@@;|"
    "*@@|a*.@@|*.*.@@|**.@@|.*.@@|@@.*|*.|*|*:443|*.org|.@@|@@..|a..@@|-a.@@|a-.@@|@@.0rg|@@.1|exam%70le.@@|"
    "exam\\ple.@@|[@@]|[@@]:443|(@@)|'@@'|!@@|~@@|^@@$|@@?|@@#a|\u0378.@@|\ud7ff.@@|ü-.@@|\uff0a.@@"
)
NUMBERS = (
    "[@@]|[@@]:443|*.@@|[@@/8]|@@/0|@@/33|@@/-1|@@/+8|@@/08|@@/8/8|@@/|@@/ 8|@@/\uff18|"
    "@@/255.0.0.0|@@/0.0.0.255|@@.|@@.1|@@%eth0"
)
IN_BRACKETS = (
    "@@|[@@|@@]|@@]:443|[[@@]]|[@@]]|[@@]443|[@@]:|[@@]:0|[@@]/64|[@@%eth0]|[@@%25eth0]|[@@%eth0/128]|[@@/0]|[@@/129]|"
    "[@@/-1]|[@@/064]|[@@/ffff::]|[@@/]|*.[@@]|[ @@]|[@@ ]|[@@:0:0:0:0:0:0:0:1]"
)
ALONE = (
    "|.|..|:|:443|[]|[]:443|/|//|/8|*.*|127.1|127.0.1|2130706433|0x7f000001|0x7f.0.0.1|0177.0.0.1|127.0.0.01|127.0.0.256|"
    "1.2.3.4.5|\uff11\uff12\uff17.0.0.1|\uff11\uff12\uff17.1|127。0。0。1|0.0.0.0/0|[::/0]|10.0.0.1/8|[fd00::1/16]|[::ffff:10.0.0.0/104]|"
    '[::ffff:10.0.0.1/128]|[64:ff9b::a00:0/104]|[2002:a00::/24]|::1|::1:443|localhost:|["example.org"]'
)
MALFORMED: tuple[Bad, ...] = (
    *_after(some_name, PORTS),
    *_after(_v4, PORTS),
    *_after(lambda rng: f"[{_v6(rng)}]", PORTS),
    *_around(some_name, NAMES),
    *_around(_v4, NUMBERS),
    *_around(_v6, IN_BRACKETS),
    *((lambda rng, text=text: text) for text in ALONE.split("|")),  # type: ignore[misc]
    lambda rng: "a" * 64 + ".org",
    lambda rng: ".".join(("a" * 60,) * 4) + "." + "b" * 10,
)
NO_TEXTS: tuple[object, ...] = (True, False, 0, 443, -1, 1.5, float("nan"), [], ["example.org"], {}, {"host": "a.org"},
                                date(2026, 1, 2))  # fmt: skip
NO_LISTS: tuple[object, ...] = (*(value for value in NO_TEXTS if not isinstance(value, list)), "", "example.org", "[]",
                                {"example.org": True}, {"0": "example.org"})  # fmt: skip


def refused(path: Path, why: object) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
        raise AssertionError(f"this was taken for a list: {why!r}")
    said = str(caught.value)
    assert str(path) in said and "network.allow" in said, said
    assert len(said) < 1_000, said


@pytest.mark.timeout(120)
def test_one_entry_that_means_nothing_and_nothing_is_loaded(tmp_path: Path) -> None:
    """Also between others that are good: half a list would let out less than the person thinks, or ask for it."""
    for seed in seeds():
        rng = random.Random(seed)
        for bad in rng.sample(MALFORMED, 12):
            text = bad(rng)
            entries: list[object] = [some_entry(rng)[1] for _ in range(rng.randrange(3))]
            entries.insert(rng.randrange(len(entries) + 1), text)
            refused(written(tmp_path, entries), (seed, text))


@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: repr(bad(random.Random(5)))[:40])
def test_each_of_them_alone(tmp_path: Path, bad: Bad) -> None:
    text = bad(random.Random(5))
    refused(written(tmp_path, [text]), text)


@pytest.mark.parametrize("value", NO_TEXTS, ids=repr)
def test_an_entry_is_a_text(tmp_path: Path, value: object) -> None:
    refused(written(tmp_path, ["example.org", value]), value)


@pytest.mark.parametrize("value", NO_LISTS, ids=repr)
def test_a_list_is_a_list(tmp_path: Path, value: object) -> None:
    refused(written(tmp_path, value), value)


@pytest.mark.parametrize("text", ["", "[network]\n", "[network]\nallow = []\n"])
def test_no_entry_lets_nothing_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    assert load_settings(path).network.allow_list() == AllowList(())
