"""The decorator of values that are made for every event: frozen for the type checker, plain at run time.

A dataclass that is frozen at run time sets each field through `object.__setattr__`, so one is made in more than twice
the time of a plain one; an NRI create makes about fifteen of them, a fifth of what it costs. And `dataclasses`, with
the `inspect` that it imports, is a third of what the OCI hook may take where no daemon answers. So mypy sees
`dataclasses.dataclass` and refuses every assignment; the interpreter takes that in its development mode only
(`python -X dev`), and else makes the few methods of a value here. A test compares each value with its dataclass.
"""

import sys
from typing import TYPE_CHECKING

__all__ = ["field", "replace", "value"]

if TYPE_CHECKING or sys.flags.dev_mode:
    from dataclasses import dataclass as value
    from dataclasses import field, replace
else:
    _SAME = object()

    def replace(one, /, **changes):
        """As in dataclasses; for a value in a third of the time."""
        anew = getattr(one, "__replace__", None)
        if anew is None:
            from dataclasses import replace as anew

            return anew(one, **changes)
        return anew(**changes)

    class field:  # noqa: N801 - named as in dataclasses
        """What `dataclasses.field` is told of a field."""

        def __init__(self, **told):
            self.told = told

    def value(*, frozen, slots, kw_only=False):
        """As `dataclass` makes it with `frozen` and `slots`, which every value has; but thawed."""
        return lambda cls: _made(cls, {"kw_only": kw_only})

    def _made(cls, usual):
        body = {name: one for name, one in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        own = {name: (kind, usual | _told(body, name)) for name, kind in cls.__annotations__.items()}
        fields = {}
        for base in reversed(cls.__mro__):
            fields |= base.__dict__.get("_fields_of_value", {})
        fields |= own
        body |= {"__slots__": tuple(own), "__dataclass_fields__": _Fields(), "_fields_of_value": fields}
        return type(cls)(cls.__name__, cls.__bases__, _methods(cls.__name__, fields) | body)

    def _told(body, name):
        if name not in body:
            return {}
        default = body.pop(name)
        return default.told if isinstance(default, field) else {"default": default}

    def _methods(name, fields):
        """The methods that a dataclass has too."""
        there, by_place, by_name, sets = {"_same": _SAME}, [], [], []
        for one, (_, told) in fields.items():
            parameter, given = one, one
            if "default" in told or "default_factory" in told:
                there[f"_{one}"] = told.get("default", told.get("default_factory"))
                parameter = f"{one}=_{one}"
            if "default_factory" in told:
                given = f"_{one}() if {one} is _{one} else {one}"
            (by_name if told["kw_only"] else by_place).append(parameter)
            sets.append(f"self.{one} = {given}")
        parameters = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
        mine, others = (f"({''.join(f'{who}.{one}, ' for one in fields)})" for who in ("self", "other"))
        shown = ", ".join(f"{one}={{self.{one}!r}}" for one in fields)
        changes = "".join(f", {one}=_same" for one in fields)
        anew = [
            f"{f'{one}=' if told['kw_only'] else ''}self.{one} if {one} is _same else {one}"
            for one, (_, told) in sorted(fields.items(), key=lambda item: item[1][1]["kw_only"])
        ]
        source = f"""class {name}:
            def __init__({parameters}): {"; ".join(sets) or "pass"}
            def __eq__(self, other): return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented
            def __hash__(self): return hash({mine})
            def __replace__(self{", *" if fields else ""}{changes}): return self.__class__({", ".join(anew)})
            def __repr__(self): return f"{{self.__class__.__qualname__}}({shown})"
            __match_args__ = {tuple(one for one, (_, told) in fields.items() if not told["kw_only"])}
        """
        exec(source, there)
        wanted = ("__init__", "__eq__", "__hash__", "__replace__", "__repr__", "__match_args__")
        return {one: there[name].__dict__[one] for one in wanted}

    class _Fields:
        """Stands where `dataclasses` looks, until it does: its `replace`, `fields` and `asdict` take values too."""

        def __get__(self, _, cls):
            import dataclasses

            at = "__dataclass_fields__"
            (owner,) = [base for base in cls.__mro__ if base.__dict__.get(at) is self]
            fields = [(name, kind, dataclasses.field(**told)) for name, (kind, told) in owner._fields_of_value.items()]
            setattr(owner, at, getattr(dataclasses.make_dataclass(owner.__name__, fields), at))
            return getattr(owner, at)
