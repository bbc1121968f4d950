"""The pre-scan of packs."""

import hashlib
import os
import random
import subprocess
import zlib
from pathlib import Path

import pytest

from lodger_daemon.memory.core.pack import BadPack, PackLimits, make_pack, object_id, scan_pack
from support.plain_boxes import agent_git

OBJECTS = [("blob", b""), ("blob", b"x" * 5000), ("tree", b""), ("blob", os.urandom(3000)), ("commit", b"c" * 16)]


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha1(body).digest()


def test_round_trip() -> None:
    assert scan_pack(make_pack(OBJECTS), PackLimits()) == {
        object_id(kind, content): (kind, content) for kind, content in OBJECTS
    }


def test_git_makes_the_same(tmp_path: Path) -> None:
    agent_git(tmp_path, "init", "-q")
    (tmp_path / "a").write_bytes(b"hello\n")
    agent_git(tmp_path, "add", "a")
    tree = agent_git(tmp_path, "write-tree")
    argv = ["git", "-C", str(tmp_path), "pack-objects", "--stdout", "-q", "--revs", "--window=0"]
    pack = subprocess.run(argv, input=f"{tree}\n".encode(), capture_output=True, check=True).stdout
    found = scan_pack(pack, PackLimits())
    assert found[tree][0] == "tree"
    assert ("blob", b"hello\n") in found.values()


@pytest.mark.parametrize(
    "pack",
    [
        b"",
        b"PACK",
        sealed(b"PACK\0\0\0\3\0\0\0\0"),
        make_pack(OBJECTS)[:-1],
        sealed(make_pack(OBJECTS)[:-20] + b"more"),
        sealed(b"PACK\0\0\0\2\0\0\0\2" + make_pack(OBJECTS)[12:-20][:10]),
        sealed(b"PACK\0\0\0\2\0\0\0\1" + bytes([0x40]) + zlib.compress(b"")),
        sealed(b"PACK\0\0\0\2\0\0\0\1" + bytes([0x70]) + zlib.compress(b"")),
        sealed(b"PACK\0\0\0\2\0\0\0\1" + bytes([0x31]) + zlib.compress(b"two")),
        sealed(b"PACK\0\0\0\2\0\0\0\1" + bytes([0x35]) + zlib.compress(b"two")),
        sealed(b"PACK\0\0\0\2\0\0\0\1" + b"\xbf" + b"\xff" * 20),
        sealed(b"PACK\0\0\0\2\xff\xff\xff\xff"),
    ],
)
def test_refused(pack: bytes) -> None:
    with pytest.raises(BadPack):
        scan_pack(pack, PackLimits())


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    bomb = make_pack([("blob", b"\0" * 30_000_000)])
    assert len(bomb) < 40_000
    with pytest.raises(BadPack, match="30000000 bytes"):
        scan_pack(bomb, PackLimits())
    lying = sealed(b"PACK\0\0\0\2\0\0\0\1" + bytes([0x3F]) + zlib.compress(b"\0" * 30_000_000))
    with pytest.raises(BadPack):
        scan_pack(lying, PackLimits())
    with pytest.raises(BadPack, match="at once"):
        scan_pack(make_pack([("blob", bytes([n]) * 900) for n in range(20)]), PackLimits(total_bytes=10_000))


def test_damaged_packs_never_fail_otherwise() -> None:
    chance = random.Random(5)
    body = make_pack(OBJECTS)[:-20]
    for _ in range(3000):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        try:
            scan_pack(sealed(bytes(damaged)), PackLimits(objects=100))
        except BadPack:
            pass
