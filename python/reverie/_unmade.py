"""What a subclass that calls no `super().__init__` finds where an attribute would be."""

from __future__ import annotations

from typing import Any

__all__ = ["set_by_init"]


class _SetByInit:
    """Stands in the class; the instance's own attribute, which `__init__` sets, goes before it."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise AttributeError(
            f"this {owner.__name__} was not initialised: its __init__ must call super().__init__(...), "
            "or the class override what is called of it"
        )


def set_by_init() -> Any:
    """The class's value of an attribute that only its `__init__` gives objects."""
    return _SetByInit()
