"""Who may connect to a server, and what they may do: TLS, and identities with rights (docs/security.md)."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reverie import _arguments

__all__ = ["TLS", "Identity"]

RawTLS = tuple[bytes | None, bytes | None, bytes | None, str | None, bytes | None]
"""The files of a `TLS`, and its server name, as the core takes them."""

_RIGHTS = {"read": 1, "insert": 2, "update": 4, "admin": 8}


@dataclass(frozen=True, kw_only=True)
class TLS:
    """Files in PEM, read when the server or client is made. TLS 1.2 and 1.3.

    Parameters
    ----------
    certificate : path, optional
        One's own, followed by those that link it to its authority. A server needs one; a client shows it to a server that asks
        (mutual TLS).
    key : path, optional
        Of the certificate; None: it is in the certificate's file.
    authority : path, optional
        Whom to trust. Of a server: clients must show a certificate that one of these has signed; None: none is asked for. Of a client:
        None means the system's authorities.
    server_name : str, optional
        Of a client: the name that the server's certificate must have; None: the address's host.
    revocation_list : path, optional
        Lists of revoked certificates (CRL), one of each authority between a peer's certificate and `authority`, that included. Who is in
        them is refused; so is everybody when one is missing or out of date. With `authority`; None: none are looked at.
    """

    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    authority: str | os.PathLike[str] | None = None
    server_name: str | None = None
    revocation_list: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        self._raw()

    def _raw(self) -> RawTLS:
        def file(name: str, path: Any) -> bytes | None:
            return None if path is None else os.fsencode(_arguments.path(name, path))

        return (
            file("certificate", self.certificate),
            file("key", self.key),
            file("authority", self.authority),
            None if self.server_name is None else _arguments.text("server_name", self.server_name),
            file("revocation_list", self.revocation_list),
        )


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who a caller is, by the token it sends or the certificate it shows, and what it may do.

    Parameters
    ----------
    name : str
        For people: in errors and in the log.
    rights : mapping of str or bytes to str or collection of str
        Table names, or ``"*"`` for every table, to some of ``"read"`` (sample, get and list items), ``"insert"``, ``"update"`` (change
        priorities, delete items) and ``"admin"`` (reset, change the rate limiter or the bounds; with ``"*"``: save
        checkpoints, change the server's memory limit).
    token : str, optional
        At least 16 visible ASCII characters.
    certificate_name : str, optional
        The common name in its certificate, or the first DNS name where that is missing. A server without an `authority` in its `TLS` asks
        for no certificate, and warns that nobody is known by one.
    """

    name: str
    rights: Mapping[str, str | Collection[str]] | Mapping[bytes, str | Collection[str]]
    token: str | None = field(default=None, repr=False)
    certificate_name: str | None = None

    def __post_init__(self) -> None:
        _arguments.text("an identity's name", self.name)
        if self.token is not None:
            _arguments.secret(f"the token of identity {self.name!r}", self.token)
        if self.certificate_name is not None:
            _arguments.text(f"the certificate_name of identity {self.name!r}", self.certificate_name)

    def _raw(self) -> tuple[str, str | None, str | None, list[tuple[str | None, int]]]:
        if not isinstance(self.rights, Mapping):
            raise TypeError(f"rights must be a dict {{table: rights}}, such as {{'replay': ['read']}}, got {self.rights!r}")
        grants = []
        for key, given in self.rights.items():
            if not isinstance(key, (str, bytes)):
                raise TypeError(f"rights must name tables, or '*' for every table, got {key!r}")
            table = _arguments.name(f"a table in the rights of identity {self.name!r}", key)
            wrong = f"the rights on {table!r} must be some of {', '.join(_RIGHTS)}, got {given!r}"
            if not isinstance(given, Iterable):
                raise TypeError(wrong)
            names = [given] if isinstance(given, str) else list(given)
            unknown = [name for name in names if not isinstance(name, str) or name not in _RIGHTS]
            if unknown or not names:
                raise ValueError(wrong)
            grants.append((None if table == "*" else table, sum(_RIGHTS[name] for name in set(names))))
        return self.name, self.token, self.certificate_name, grants


def raw_tls(tls: Any) -> RawTLS | None:
    """What the core takes for a `TLS`, or None."""
    if tls is not None and not isinstance(tls, TLS):
        raise TypeError(f"tls must be a reverie.TLS, got {tls!r}")
    return None if tls is None else tls._raw()


def raw_identities(identities: Sequence[Identity] | None) -> list[Any] | None:
    """What the core takes for identities, or None: nobody is asked."""
    if identities is None:
        return None
    found = _arguments.listed("identities", identities, "reverie.Identity")
    for identity in found:
        if not isinstance(identity, Identity):
            raise TypeError(f"identities must be reverie.Identity objects, got {identity!r}")
    return [identity._raw() for identity in found]


def warn_of_certificates(identities: list[Any] | None, tls: RawTLS | None) -> None:
    """A line in the log for each of a server's that nobody can be, as reverie-server writes it."""
    if identities is None or (tls is not None and tls[2] is not None):
        return
    for name, _, certificate_name, _ in identities:
        if certificate_name is not None:
            logging.getLogger("reverie").warning(
                'identity "%s" is known by its certificate, and nobody is asked for one; give who signs them by TLS(authority=...)',
                name,
            )


def from_environment(tls: TLS | None, token: str | None, *, has_tls: bool) -> tuple[TLS | None, str | None]:
    """What a client of another process was not given, by REVERIE_TOKEN, REVERIE_TLS_AUTHORITY, _CERTIFICATE, _KEY and _REVOCATION_LIST.

    So nobody need write a token into a program, and processes that a framework starts have theirs. `has_tls`: the address may have TLS.
    """
    if tls is None and has_tls:
        names = ("certificate", "key", "authority", "revocation_list")
        files = {name: value for name in names if (value := os.environ.get(f"REVERIE_TLS_{name.upper()}"))}
        tls = TLS(**files) if files else None
    if token is None and (value := os.environ.get("REVERIE_TOKEN")):
        token = _arguments.secret("REVERIE_TOKEN", value)
    return tls, token
