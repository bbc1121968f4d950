"""What `lodger pair` and `lodger devices` say to people, and the picture to scan."""

import segno

from lodger_cli.pair import joining_lines, pairing_lines, picture_lines
from lodger_cli.serve import HubFlags

FINGERPRINT = ":".join(f"{number:02X}" for number in range(32))
PAIRING = {
    "code": "ABCD-0123",
    "expires_in_s": 600,
    "fingerprint": FINGERPRINT,
    "links": [
        {"reach": "lan", "url": "https://192.168.1.5:8378/#pair=ABCD-0123"},
        {"reach": "machine", "url": "http://127.0.0.1:8377/#pair=ABCD-0123"},
    ],
}


def test_the_farthest_address_comes_first_with_code_and_fingerprint() -> None:
    lines = pairing_lines(PAIRING)
    text = "\n".join(lines)
    assert lines[0].split() == ["Page", "https://192.168.1.5:8378"]
    assert "http://127.0.0.1:8377" in lines[1]
    assert "ABCD-0123   (once, within 10 minutes)" in text
    assert FINGERPRINT[:47] in text
    assert FINGERPRINT[48:] in text
    # The code is in the picture, and in no address that somebody would copy.
    assert "#pair" not in text
    assert max(map(len, lines)) <= 110


def test_another_machine_is_told_the_addresses_it_can_reach() -> None:
    assert joining_lines(PAIRING) == [
        "  On the other machine, within 10 minutes:",
        f"    lodger join https://192.168.1.5:8378 ABCD-0123 --fingerprint {FINGERPRINT}",
    ]
    local = joining_lines({**PAIRING, "links": PAIRING["links"][1:], "fingerprint": None})
    assert "No other machine reaches this hub" in local[0]
    assert local[-1] == "    lodger join http://127.0.0.1:8377 ABCD-0123"


def test_an_address_of_this_machine_only_is_called_that() -> None:
    local = {**PAIRING, "links": PAIRING["links"][1:], "fingerprint": None}
    text = "\n".join(pairing_lines(local))
    assert "works on this machine only" in text
    assert "--lan" in text
    assert "SHA-256" not in text


def test_the_picture_is_the_link() -> None:
    link = PAIRING["links"][0]["url"]
    lines = picture_lines(link)
    matrix = [bytes(row) for row in segno.make(link, error="l", micro=False).matrix]
    border = 2
    size = len(matrix) + 2 * border
    assert len(lines) == (size + 1) // 2
    read = []
    for line in lines:
        read.append([character in " ▄" for character in line])
        read.append([character in " ▀" for character in line])
    for y, row in enumerate(matrix):
        assert [int(read[y + border][x + border]) for x in range(len(row))] == list(row), y


def test_a_hub_is_started_with_the_words_its_flags_came_from() -> None:
    flags = HubFlags("127.0.0.1", 8377, True, -1, "c.pem", "k.pem", "", ("hub.example",))
    assert flags.arguments() == [
        *("hub", "--host", "127.0.0.1", "--port", "8377", "--lan-port", "-1", "--lan"),
        *("--tls-cert", "c.pem", "--tls-key", "k.pem", "--public-name", "hub.example"),
    ]
