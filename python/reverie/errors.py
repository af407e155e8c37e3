"""What can go wrong: one exception class for each status code, all of them `ReverieError`.

An exception's text is the sentence that the C library wrote; the class says which of gRPC's status codes it came with. Each
class also derives from the builtin that a caller of Reverb or of plain Python would catch.
"""

from __future__ import annotations

__all__ = [
    "AbortedError",
    "AddressInUseError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpenPortWarning",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "ReverbError",
    "ReverieError",
    "StructureError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
]


class ReverbError(Exception):
    """The base that Reverb's users catch; every error of this package derives from it."""


class ReverieError(ReverbError):
    """The base of all errors of this package; `code` is gRPC's number for the status."""

    code: int = 2


class CancelledError(ReverieError, RuntimeError):
    """The call was cancelled, or its table or server was closed while it waited."""

    code = 1


class UnknownError(ReverieError, RuntimeError):
    """The other end failed without saying how."""

    code = 2


class InvalidArgumentError(ReverieError, ValueError):
    """An argument is wrong whatever the state of the table: shape, dtype, priority, limiter parameters."""

    code = 3


class StructureError(InvalidArgumentError, KeyError, AttributeError):
    """A place of a nest that was a leaf is a container now, or the other way round."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class DeadlineExceededError(ReverieError, TimeoutError):
    """The time ran out; the sentence says what was waited for."""

    code = 4


class NotFoundError(ReverieError, RuntimeError, ValueError):
    """No such table or item. (Reverb raises RuntimeError or ValueError for it, depending on the call.)"""

    code = 5


class AlreadyExistsError(ReverieError, RuntimeError):
    """Something of this name is there already."""

    code = 6


class PermissionDeniedError(ReverieError, PermissionError, RuntimeError):
    """The server does not let this caller do it."""

    code = 7


class ResourceExhaustedError(ReverieError, IndexError):
    """A bound was reached: bytes or items in flight, the size of a message, memory."""

    code = 8


class FailedPreconditionError(ReverieError, RuntimeError):
    """The object's state forbids the call; the sentence says what must be done first."""

    code = 9


class AbortedError(ReverieError, RuntimeError):
    """Somebody else changed the state meanwhile."""

    code = 10


class OutOfRangeError(ReverieError, RuntimeError):
    """Past the end of a sequence."""

    code = 11


class UnimplementedError(ReverieError, NotImplementedError):
    """The server at the other end cannot do this (a plain Reverb server, or an older one)."""

    code = 12


class InternalError(ReverieError, RuntimeError):
    """A bug on this or the other side."""

    code = 13


class UnavailableError(ReverieError, ConnectionError, RuntimeError):
    """The server cannot be reached or went away."""

    code = 14


class AddressInUseError(UnavailableError, ValueError):
    """A server's address cannot be bound."""


class DataLossError(ReverieError, RuntimeError):
    """Stored or received bytes do not decode, or lie in a spill's file whose disk does not give them back."""

    code = 15


class UnauthenticatedError(ReverieError, PermissionError, RuntimeError):
    """The server does not know who calls."""

    code = 16


class OpenPortWarning(UserWarning):
    """A server listens on all interfaces, where everybody who reaches the port may read and change its tables."""


# By status code, as the C extension looks them up; index 0 (OK) is never raised.
_BY_CODE: tuple[type[ReverieError], ...] = (
    UnknownError,
    CancelledError,
    UnknownError,
    InvalidArgumentError,
    DeadlineExceededError,
    NotFoundError,
    AlreadyExistsError,
    PermissionDeniedError,
    ResourceExhaustedError,
    FailedPreconditionError,
    AbortedError,
    OutOfRangeError,
    UnimplementedError,
    InternalError,
    UnavailableError,
    DataLossError,
    UnauthenticatedError,
)
