"""The benchmarks by name: what each runs for the options of the command line, which names these may have, and whose virtual environments it
needs."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

from .cells import Results
from .names import Known, WrongNameError

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Subject:
    run: Callable[[Results, argparse.Namespace, Say], None]
    names: Callable[[], Known]  # imports the benchmark
    stores: dict[str, str]  # peers, and the script in tools/dev that makes their virtual environment
    one: tuple[str, ...] = ()  # options of which it takes one name
    # Raises WrongNameError where names that are known each by itself do not go together.
    check: Callable[[argparse.Namespace], None] = lambda options: None

    def peers(self, wanted: list[str] | None) -> list[str]:
        """The scripts that must have run."""
        return sorted({script for store, script in self.stores.items() if wanted is None or store in wanted})


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text else None


def _wire(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .wire import plan, run

    chosen = plan.quick() if options.quick else plan.Options()
    pace = {name: value for name, value in (("seconds", options.seconds), ("warm", options.warm)) if value is not None}
    changes: dict = {
        "payloads": _split(options.cases),
        "operations": _split(options.operations),
        "clients": tuple(int(n) for n in options.clients.split(",")) if options.clients else None,
        "languages": _split(options.languages),
        "stores": _split(options.stores),
        "rounds": options.rounds,
        "items": options.items,
        "pace": dataclasses.replace(chosen.pace, **pace),
    }
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _wire_names() -> Known:
    from .wire import plan

    return {
        "stores": plan.STORES,
        "cases": tuple(plan.PAYLOADS),
        "operations": plan.OPERATIONS,
        "languages": plan.Options.languages,
        "clients": None,
    }


def _items(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .items import run

    chosen = run.quick() if options.quick else run.Options()
    changes: dict = {
        "cases": _split(options.cases),
        "stores": _split(options.stores),
        "items": options.items,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _items_names() -> Known:
    from .items import run

    return {"stores": run.Options.stores, "cases": run.Options.cases}


def _latency(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .latency import run

    chosen = run.quick() if options.quick else run.Options()
    changes: dict = {
        "payloads": _split(options.cases),
        "operations": _split(options.operations),
        "clients": tuple(int(n) for n in options.clients.split(",")) if options.clients else None,
        "languages": _split(options.languages),
        "stores": _split(options.stores),
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _latency_names() -> Known:
    from .latency import run

    return {
        "stores": run.Options.stores,
        "cases": tuple(run.PAYLOADS),
        "operations": run.Options.operations,
        "languages": run.Options.languages,
        "clients": None,
    }


def _single(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .single import run

    chosen = run.quick() if options.quick else run.Options()
    changes: dict = {
        "payload": options.cases,
        "operations": _split(options.operations),
        "languages": _split(options.languages),
        "stores": _split(options.stores),
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _single_names() -> Known:
    from .single import run

    return {
        "stores": run.Options.stores,
        "cases": tuple(run.PAYLOADS),
        "operations": run.Options.operations,
        "languages": run.Options.languages,
    }


def _local(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .local import run

    cases = _split(options.cases) or (("small",) if options.quick else tuple(run.CASES))
    run.run(
        results,
        cases,
        _split(options.stores) or tuple(run.STORES),
        _split(options.operations),
        options.rounds or (1 if options.quick else 9),  # the machine's own moods last seconds: many short turns meet them all
        options.seconds or (0.05 if options.quick else 0.1),
        say,
    )


def _local_names() -> Known:
    from .local import cases, run

    return {"stores": tuple(run.STORES), "cases": tuple(run.CASES), "operations": cases.OPERATIONS}


def _local_check(options: argparse.Namespace) -> None:
    from .local import cases

    wanted = _split(options.operations)
    for name in _split(options.cases) or ():
        known = cases.operations(cases.CASES[name])
        if wanted and not set(wanted) & set(known):
            raise WrongNameError(f"--operations: of {name} there is no {' or '.join(wanted)}: it has {', '.join(known)}")


def _growth(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .growth import run

    chosen = run.quick() if options.quick else run.Options()
    changes: dict = {"rounds": options.rounds, "seconds": options.seconds}
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _growth_names() -> Known:
    return {"stores": ("reverie",)}


def _checkpoint(results: Results, options: argparse.Namespace, say: Say) -> None:
    from .checkpoint import run

    chosen = run.quick() if options.quick else run.Options()
    changes: dict = {
        "payload": options.cases,
        "parts": _split(options.operations),
        "stores": _split(options.stores),
        "items": options.items,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    run.run(results, dataclasses.replace(chosen, **{name: value for name, value in changes.items() if value is not None}), say)


def _checkpoint_names() -> Known:
    from .checkpoint import run

    return {"stores": run.Options.stores, "cases": tuple(run.PAYLOADS), "operations": run.PARTS}


SUBJECTS = {
    "wire": Subject(_wire, _wire_names, {"dm-reverb": "peer.sh"}),
    "items": Subject(_items, _items_names, {"dm-reverb": "peer.sh"}),
    "latency": Subject(_latency, _latency_names, {"dm-reverb": "peer.sh"}),
    "single": Subject(_single, _single_names, {"dm-reverb": "peer.sh"}, ("cases",)),
    "local": Subject(
        _local,
        _local_names,
        {"dm-reverb": "peer.sh", "rlox": "peers.sh", "cpprb": "peers.sh", "sb3": "peers.sh", "flashbax": "peers.sh"},
        check=_local_check,
    ),
    "growth": Subject(_growth, _growth_names, {}),
    "checkpoint": Subject(_checkpoint, _checkpoint_names, {"dm-reverb": "peer.sh"}, ("cases",)),
}
