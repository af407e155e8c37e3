"""Which names the options of the command line may have: what nobody knows is refused before anything is measured, and not left out."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence

Known = Mapping[str, Collection[str] | None]  # of one benchmark, by option; None: whole numbers
OPTIONS = ("stores", "cases", "operations", "languages", "clients")


class WrongNameError(ValueError):
    """The text is for whoever typed it."""


def _split(options: argparse.Namespace, option: str) -> list[str]:
    given = getattr(options, option)
    return [] if given is None else given.split(",")


def _is_known(name: str, known: Collection[str] | None) -> bool:
    return (name.isdecimal() and int(name) > 0) if known is None else name in known


def _describe(known: Collection[str] | None) -> str:
    return "whole numbers from 1" if known is None else ", ".join(known)


def check(options: argparse.Namespace, chosen: Mapping[str, Known]) -> None:
    """Every name that is given is known to one of the chosen benchmarks at least, and each of them has some that it knows.

    Raises
    ------
    WrongNameError
    """
    for option in OPTIONS:
        given = _split(options, option)
        having = {what: known[option] for what, known in chosen.items() if option in known}
        if given and not having:
            raise WrongNameError(f"--{option}: {', '.join(chosen)} has no such option")
        for name in given:
            if not any(_is_known(name, known) for known in having.values()):
                told = "; ".join(f"{what} has {_describe(known)}" for what, known in having.items())
                raise WrongNameError(f"--{option}: there is no {name!r}: {told}")
        for what, known in having.items():
            if given and not any(_is_known(name, known) for name in given):
                raise WrongNameError(f"--{option}: {what} has none of {', '.join(given)}; it has {_describe(known)}")


def of_one(options: argparse.Namespace, known: Known, one: Sequence[str] = ()) -> argparse.Namespace:
    """The options as one of the chosen benchmarks takes them: with the names that it knows. Of the options in `one` it takes one name."""
    mine = argparse.Namespace(**vars(options))
    for option in OPTIONS:
        given = _split(options, option)
        names = [name for name in given if option in known and _is_known(name, known[option])]
        if len(names) > 1 and option in one:
            raise WrongNameError(f"--{option}: one at a time, got {', '.join(names)}")
        setattr(mine, option, ",".join(names) if names else None)
    return mine
