"""An authority of our own, and certificates for the server that can be replaced while it runs."""

from __future__ import annotations

import os
import pathlib


class Certificates:
    def __init__(self, folder: pathlib.Path) -> None:
        import trustme

        self.issuer = trustme.CA()
        self.authority, self.certificate = folder / "authority.pem", folder / "server.pem"
        self.issuer.cert_pem.write_to_path(str(self.authority))
        self.replace()

    def replace(self) -> None:
        """A new one takes the place of the old."""
        made = self.certificate.with_suffix(".new")
        self.issuer.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(made))
        os.replace(made, self.certificate)

    def damage(self) -> None:
        """Something that is no certificate takes its place."""
        made = self.certificate.with_suffix(".new")
        made.write_text("no certificate\n")
        os.replace(made, self.certificate)
