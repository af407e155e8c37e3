"""The transitions writer: steps of environments side by side, of which what repeats is stored once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from reverie import _arguments, _core, _leaving, nest
from reverie.errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from reverie.client import Client

__all__ = ["Transitions"]


class Transitions(_leaving.Block):
    """Made by `Client.transitions`. Belongs to one thread at a time.

    Every `add` is one step of all environments, and each environment's row an item of its own, to be sampled at once::

        with client.transitions("replay", envs.num_envs, next={"next_obs": "obs"}, stack={"obs": 4}) as writer:
            obs, _ = envs.reset()
            over = np.zeros(envs.num_envs, bool)
            while training:
                action = policy(obs)
                next_obs, reward, terminated, truncated, infos = envs.step(action)
                step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "done": terminated}
                writer.add(step, where=~over)
                obs, over = next_obs, terminated | truncated

    `where` is for environments that reset themselves by a step of its own, as Gymnasium's do unless told otherwise
    (``AutoresetMode.NEXT_STEP``): that step leads from the last observation of an episode to the first of the next one, is no
    transition, and would be learned from as one that is not done. With ``AutoresetMode.SAME_STEP`` there is no such step, but the last
    observation is in ``infos["final_obs"]``, and ``next_obs`` must have it from there.

    What is sampled is what was added, as after `Client.add_batch`: the same columns, shapes and dtypes. In the table the rows of
    ``next_obs`` are those of ``obs`` one step on, and each frame of a stack is stored once. That is found out by comparing
    contents: a row that does not go on from the last one of its environment, as after a reset, is stored whole, so nothing has
    to be said about where episodes end, and any data is right.

    Only the very next step is compared: with returns over n steps, where ``next_obs`` is ``obs`` n steps on, `next` finds nothing, and
    rows are stored whole, stacks included. Leave it out there and give both columns a stack: ``stack={"obs": 4, "next_obs": 4}``.

    The end of the ``with`` block waits until all items are in their table, and closes the writer. An exception that leaves the
    block is not kept waiting: items get one second, and with KeyboardInterrupt, SystemExit and GeneratorExit none; what is given
    up then is logged. What is unconfirmed at `close` or deletion is lost, and logged. What the server refused and no call has raised
    is logged, too, and a note of an exception that leaves the block.
    """

    _ends_with_block = True

    def __init__(
        self, client: Client, table: str, num_envs: int, following: Mapping[Any, Any] | None, stack: Mapping[Any, int] | None
    ) -> None:
        self._client = client
        self._table = table
        self._num_envs = num_envs
        self._next = {str(column): str(of) for column, of in (following or {}).items()}
        self._stack = {
            str(column): _arguments.positive(f"stack[{column!r}]", frames, 1024) for column, frames in (stack or {}).items()
        }
        self._writer: _core.Transitions | None = None
        self._closed = False

    @property
    def num_envs(self) -> int:
        """Environments that step together."""
        return self._num_envs

    @property
    def closed(self) -> bool:
        """Was `close` called?"""
        return self._closed

    def add(
        self, data: Any, priority: ArrayLike | None = None, *, where: ArrayLike | None = None, timeout: float | None = 60.0
    ) -> None:
        """Adds one step of every environment, or of some.

        Parameters
        ----------
        data : nest of arrays
            Each leaf is [num_envs, ...row]; of a stack of k frames [num_envs, k, ...frame], the oldest frame first. The first
            step fixes structure, dtypes and row shapes.
        priority : float or array_like, optional
            Of all rows, or [num_envs]; 1.0 by default.
        where : array_like of bool, optional
            [num_envs]: the environments whose rows are added. The others' are left out, and their priorities not looked at. All by
            default.
        timeout : float, optional
            Seconds; None waits for ever. In process the rows are in the table when this returns, which waits while the rate
            limiter forbids it. To a server elsewhere they are on their way (`flush`): it waits only until the server has said
            what its tables expect, once, and while more than 64 MiB are unconfirmed.

        Raises
        ------
        ValueError
            Another structure, number of environments, dtype or row shape than the first step's or the table's signature's; a
            column of `Client.transitions` that the data does not have, or that is unlike what it is said to be; a NaN priority.
            Nothing was added.
        TypeError
            A leaf that cannot be stored, a `where` that is not of bools.
        UnimplementedError
            A leaf of strings.
        DeadlineExceededError
            The sentence says what was waited for, and for how many environments the row is in.
        CancelledError
            `close` was called meanwhile, by another thread or a signal handler.
        """
        writer = self._writer
        if writer is not None:
            writer.add(data, priority, where, timeout)
            return
        if self._closed:
            raise FailedPreconditionError("close has been called on this transitions writer; make a new one")
        structure = nest.Structure(data)
        self._writer = writer = self._begin(structure)
        try:
            if self._closed:  # meanwhile, by another thread or a signal handler, which may not have seen this writer
                writer.close()
            writer.add(data, priority, where, timeout)
        except BaseException:
            self._writer = None  # the first step that is added is what fixes the structure
            raise
        self._client._remember(self._table, structure)

    def _begin(self, structure: nest.Structure) -> _core.Transitions:
        """Which leaf is which other's next, and which are stacks."""
        names = ["/".join(str(part) for part in path) for path in structure.paths()]
        if not names:
            raise InvalidArgumentError("the data has no leaves: there is nothing to add")
        following, frames = [-1] * len(names), [0] * len(names)
        for column, of in self._next.items():
            for leaf in self._leaves("next", column, names):
                counterpart = of + names[leaf][len(column) :]
                if counterpart not in names:
                    raise InvalidArgumentError(
                        f"next says that {names[leaf]!r} is {counterpart!r} one step on, but the data has only {', '.join(names)}"
                    )
                following[leaf] = names.index(counterpart)
        for column, k in self._stack.items():
            for leaf in self._leaves("stack", column, names):
                frames[leaf] = k
        return _core.Transitions(self._client, self._table, self._num_envs, structure, following, frames)

    @staticmethod
    def _leaves(what: str, column: str, names: list[str]) -> list[int]:
        found = [i for i, name in enumerate(names) if name == column or name.startswith(column + "/")]
        if not found:
            raise InvalidArgumentError(f"{what} names {column!r}, but the data has only {', '.join(names)}")
        return found

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything that was added is in the table; in process it is.

        Raises
        ------
        DeadlineExceededError
            The sentence says what it waits for; the items go on in the background.
        CancelledError
            `close` was called meanwhile, by another thread or a signal handler.
        """
        if self._closed:
            raise FailedPreconditionError("close has been called on this transitions writer; make a new one")
        writer = self._writer
        if writer is not None:
            writer.flush(timeout)

    def discard_failed(self) -> int:
        """Forgets items that the server refused, so that `flush` waits for the others again. Returns how many.

        Such an item's error is raised by the next call, once, and by every `flush` until then.
        """
        writer = self._writer
        return 0 if writer is None else writer.discard_failed()

    def close(self) -> None:
        """Drops what is unconfirmed, without waiting. `add` and `flush` fail from then on, and one that another thread is in, or that this
        one is in while a signal handler calls close, ends with CancelledError. How many items are given up is logged, and what the
        server refused and no call has raised. Idempotent.
        """
        _leaving.tell_closed(self._abandon())
        _leaving.tell_refused(self._take_failure(), "closed")

    def _abandon(self) -> int:
        self._closed = True
        writer = self._writer  # an add in another thread may just give up its first step, and the writer with it
        return 0 if writer is None else writer.close()

    def __enter__(self) -> Self:
        if self._closed:
            raise InvalidArgumentError("a closed Transitions cannot be entered; make a new one")
        return self

    def _is_over(self) -> bool:
        return self._closed

    def _finish(self) -> None:
        if not self._closed:
            self.flush()
            self._abandon()

    def _settle(self, timeout: float | None, /) -> None:
        writer = self._writer
        if writer is not None:
            writer.settle(timeout)

    def _take_failure(self) -> str | None:
        writer = self._writer
        return None if writer is None else writer.take_failure()

    def __repr__(self) -> str:
        return (
            f"Transitions(table={self._table!r}, num_envs={self._num_envs}, next={self._next}, stack={self._stack}, "
            f"closed={self._closed})"
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Transitions cannot be pickled; pickle its client and make a new one")
