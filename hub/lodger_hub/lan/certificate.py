"""The certificate a hub makes itself for a home network: people compare its fingerprint once."""

import datetime
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lodger_hub.durable_files import write_durably
from lodger_hub.errors import CertificateFailed

if TYPE_CHECKING:
    from cryptography import x509

LIFE: Final = datetime.timedelta(days=397)
"""The longest that browsers take."""
RENEW_BEFORE: Final = datetime.timedelta(days=30)
CERTIFICATE_BYTES: Final = 64 * 1024
# Addresses set aside for documentation; nothing is sent to them.
ELSEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


@dataclass(frozen=True, slots=True)
class LanCertificate:
    certificate: Path
    key: Path
    fingerprint: str
    """SHA-256 of the certificate in the form browsers show: pairs of hex digits with colons."""


def lan_addresses() -> tuple[str, ...]:
    """The addresses under which other machines of the network find this one, as the kernel would choose them."""
    found = []
    for family, target in ELSEWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))
                address = probe.getsockname()[0]
            except OSError:
                continue
        if not ipaddress.ip_address(address).is_loopback:
            found.append(address)
    return tuple(found)


def fingerprint_of(der: bytes) -> str:
    import hashlib

    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def prepare_certificate(
    folder: Path, addresses: Sequence[str], host_name: str, now: datetime.datetime
) -> LanCertificate:
    """The kept certificate, or a new one when there is none that holds for these addresses for another month.

    Raises: CertificateFailed.
    """
    kept = LanCertificate(folder / "lan.pem", folder / "lan.key", "")
    names = tuple(dict.fromkeys([host_name, f"{host_name.removesuffix('.local')}.local", "localhost"]))
    wanted = tuple(dict.fromkeys([*addresses, "127.0.0.1", "::1"]))
    try:
        certificate = _read(kept, names, wanted, now) or _make(kept, names, wanted, now)
    except (OSError, ValueError) as error:
        raise CertificateFailed(folder, str(error)) from error
    from cryptography.hazmat.primitives.serialization import Encoding

    return LanCertificate(kept.certificate, kept.key, fingerprint_of(certificate.public_bytes(Encoding.DER)))


def _read(
    kept: LanCertificate, names: Sequence[str], addresses: Sequence[str], now: datetime.datetime
) -> "x509.Certificate | None":
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not kept.certificate.exists() or not kept.key.exists():
        return None
    try:
        certificate = x509.load_pem_x509_certificate(kept.certificate.read_bytes()[:CERTIFICATE_BYTES])
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key = load_pem_private_key(kept.key.read_bytes()[:CERTIFICATE_BYTES], None)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return None
    if key.public_key() != certificate.public_key():
        # A stop between the two files left the new key beside the old certificate.
        return None
    kept.key.chmod(0o600)
    holds_for = {str(one) for one in alternatives.get_values_for_type(x509.IPAddress)}
    holds_for |= set(alternatives.get_values_for_type(x509.DNSName))
    fresh = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEW_BEFORE
    return certificate if fresh and holds_for >= {*names, *addresses} else None


def _make(
    kept: LanCertificate, names: Sequence[str], addresses: Sequence[str], now: datetime.datetime
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Lodger on {names[0]}"[:64])])
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        # A daemon may be given this file as what it trusts; it must not vouch for anything else.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_durably(kept.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_durably(kept.certificate, certificate.public_bytes(Encoding.PEM), 0o644)
    return certificate
