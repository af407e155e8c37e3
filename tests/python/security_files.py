"""Certificates and tokens: what the tests of security share."""

import datetime

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

ACTOR, LEARNER = "token-of-the-actors", "token-of-the-learner"


class Files:
    """An authority, a server's certificate for 127.0.0.1, and a client's for "actor-7"."""

    def __init__(self, folder):
        self.folder = folder
        self.trust = trustme.CA()
        self.authority = str(folder / "authority.pem")
        self.trust.cert_pem.write_to_path(self.authority)
        self.server = self.issue("server.pem", "127.0.0.1", "localhost")
        self.client = self.issue("client.pem", "actor.example", common_name="actor-7")

    def issue(self, name, *names, authority=None, **options):
        path = str(self.folder / name)
        (authority or self.trust).issue_cert(*names, **options).private_key_and_cert_chain_pem.write_to_path(path)
        return path


def revoke(files, *serials):
    """The authority's list of revoked certificates; the path."""
    now = datetime.datetime.now(datetime.UTC)
    key = serialization.load_pem_private_key(files.trust.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(files.trust.cert_pem.bytes())
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    builder = builder.last_update(now - datetime.timedelta(days=1)).next_update(now + datetime.timedelta(days=1))
    for serial in serials:
        revoked = (
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - datetime.timedelta(hours=1)).build()
        )
        builder = builder.add_revoked_certificate(revoked)
    path = files.folder / "revoked.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path
