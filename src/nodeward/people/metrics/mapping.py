"""Makes metric families of the picture of a node, by what the fields of its rows say of themselves (`core.shown`).

Series are made anew from each picture, so they vanish with their container. What bounds them is the node: a handful for
each row, and as many rows as `Rows` lets through. Labels come from what others wrote, so they are cut and cleaned.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, get_args

from prometheus_client.metrics_core import Metric as Written
from prometheus_client.samples import Sample

from nodeward.core.shown import Durations, Family, Info, Label, Metric, Named, Rows, told_by
from nodeward.host.pace import paced
from nodeward.people.rows import NodeView

MOST_CHARACTERS = 512
Labels = dict[str, str]
Key = tuple[str, ...]
Value = float | Durations
_ALL: Final = Rows(most=1 << 62)


@dataclass(slots=True)
class _Plan:
    """What is made of the rows of one class in one place of the picture."""

    labels: list[tuple[str, str]] = field(default_factory=list)
    """A field, and the label that it is."""
    own: Key = ()
    """Those of these labels that every series has."""
    infos: dict[str, list[str]] = field(default_factory=dict)
    """By the name of an info family the fields that are its labels."""
    metrics: list[tuple[str, Metric]] = field(default_factory=list)
    below: list[tuple[str, Rows, "_Plan"]] = field(default_factory=list)
    durations: list[tuple[str, Metric, "_Plan"]] = field(default_factory=list)
    """Rows that are histograms."""
    sources: dict[str, Key] = field(default_factory=dict)
    """By family, from which of the labels known here its own ones come."""
    keys: tuple[Key, ...] = ()
    """Each of these once."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to show of it."""
        return not (self.infos or self.metrics or self.below or self.durations)


class _Catalogue:
    """Reads what the classes of rows say of themselves."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def plan(self, kind: type, above: Key = ()) -> _Plan:
        """For rows of this class below others with these labels."""
        made, infos = _Plan(), dict[str, tuple[Info, list[str]]]()
        found = list(told_by(kind))
        known = above
        for name, _, told in found:
            for one in told:
                if isinstance(one, Label):
                    made.labels.append((name, one.name or name))
                    made.own += () if one.named else (one.name or name,)
        known += made.own
        for name, hint, told in found:
            rows = next((one for one in told if isinstance(one, Rows)), _ALL)
            if rows.left_out is not None:
                self._family(rows.left_out, ())
            inner = _row_class(hint)
            for one in told:
                if isinstance(one, Info):
                    infos.setdefault(one.family, (one, []))[1].append(name)
                    made.infos.setdefault(one.family, []).append(name)
                elif isinstance(one, Named):
                    for each in one.each():
                        made.sources[each.name] = self._family(each, known)
                        made.metrics.append((name, each))
                elif isinstance(one, Metric) and one.kind == "histogram":
                    assert inner is not None
                    below = self.plan(inner, known)
                    self._family(one, (*known, *(label for _, label in below.labels)))
                    made.durations.append((name, one, below))
                elif isinstance(one, Metric):
                    made.sources[one.name] = self._family(one, known)
                    made.metrics.append((name, one))
            if inner is not None and not (below := self.plan(inner, known)).is_empty:
                made.below.append((name, rows, below))
        for info, names in infos.values():
            self.families[info.family] = Family(info.family, "gauge", (*known, *names), info.help)
            made.sources[info.family] = known
        made.keys = tuple(dict.fromkeys(made.sources.values()))
        return made

    def _family(self, one: Metric, known: Key) -> Key:
        """Adds the family; from which labels of the row its own come."""
        pairs = [name.partition("=") for name in (known if one.labels is None else one.labels)]
        own = (*(label for label, _, _ in pairs), *(label for label, _ in one.fixed), *((one.by,) if one.by else ()))
        self.families.setdefault(one.name, Family(one.name, one.kind, own, one.help))
        return tuple(source or label for label, _, source in pairs)


def _row_class(hint: Any) -> type | None:
    """The class of rows that a value of this type has or is."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_row_class, get_args(hint))), None)


_catalogue: Final = _Catalogue()
_NODE: Final = _catalogue.plan(NodeView)
FAMILIES: Final = tuple(_catalogue.families.values())
"""The catalogue of what `/metrics` has. docs/metrics.md follows it."""


def metrics(view: NodeView) -> Iterator[Written]:
    """All families that have something to show, one after the other."""
    series = _Series()
    series.take(view, _NODE, {}, True)
    for family in FAMILIES:
        if found := series.found.get(family.name):
            yield _written(family, found, series.labels)


class _Series:
    """The series of one picture."""

    def __init__(self) -> None:
        self.found: dict[str, dict[Key, Value | None]] = {}
        """By family; None for what is not known. Of two series with the same labels the first counts, also where it is
        not known."""
        self.labels: dict[tuple[Key, Key], Labels] = {}
        """By names and values: who writes them makes their text once."""

    def take(self, row: object, plan: _Plan, known: Labels, is_shown: bool) -> None:
        """Takes in a row with these labels, and those below it. One that another stands for is told of only by metrics
        that name their labels themselves."""
        keys = {labels: tuple([known.get(label, "") for label in labels]) for labels in plan.keys}
        for name, fields in plan.infos.items() if is_shown else ():
            told = tuple(_clean(_word(getattr(row, one))) for one in fields)
            self.found.setdefault(name, {})[(*keys[plan.sources[name]], *told)] = 1
        for name, metric in plan.metrics:
            if not is_shown and metric.labels is None:
                continue
            value = getattr(row, name)
            if not metric.given or getattr(row, metric.given) is not None:
                self._value(metric, keys[plan.sources[metric.name]], value)
        for name, metric, below in plan.durations if is_shown else ():
            for one in _rows(getattr(row, name)):
                self.found.setdefault(metric.name, {})[tuple(self._labelled(one, below, known).values())] = one
        for name, rows, below in plan.below:
            several = [one for one in _rows(getattr(row, name)) if rows.where(one)]
            shown = several[: rows.most]
            if rows.left_out is not None:
                self.found[rows.left_out.name] = {(): len(several) - len(shown)}
            if rows.prefers is not None:
                shown.sort(key=rows.prefers, reverse=True)
            seen: set[Key] = set()
            for one in paced(shown, 32):
                labels = self._labelled(one, below, known)
                key = tuple([labels[name] for name in below.own]) if rows.once else ()
                self.take(one, below, labels, is_shown and not (rows.once and key in seen))
                seen.add(key)

    def _labelled(self, row: object, plan: _Plan, above: Labels) -> Labels:
        if not plan.labels:
            return above
        return above | {label: _clean(_word(getattr(row, name))) for name, label in plan.labels}

    def _value(self, metric: Metric, key: Key, value: Any) -> None:
        found = self.found.setdefault(metric.name, {})
        if metric.fixed:
            key += tuple(text for _, text in metric.fixed)
        if value is not None and value != metric.absent and metric.of is not None:
            value = metric.of(value)
        if value is None or value == metric.absent:
            found.setdefault(key, None)
        elif metric.every:
            told = _word(value)
            for word in map(_word, metric.every):
                self._put(found, (*key, word), word == told, metric)
        elif isinstance(value, (int, float)):
            self._put(found, key, value, metric)
        elif metric.by and isinstance(value, Mapping):
            for name, number in value.items():
                self._put(found, (*key, _clean(name)), number, metric)
        elif not metric.by:
            self._put(found, key, len(value), metric)
        elif value:
            self._put(found, (*key, _clean(_word(value))), 1, metric)

    def _put(self, found: dict[Key, Value | None], key: Key, value: float, metric: Metric) -> None:
        value = value + 0 if metric.per == 1 else value / metric.per  # a bool is written as a number
        before = found.get(key)
        if metric.adds and isinstance(before, (int, float)):
            found[key] = before + value
        else:
            found.setdefault(key, value)


def _rows(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, tuple) else [value]


def _written(family: Family, found: Mapping[Key, Value | None], known: dict[tuple[Key, Key], Labels]) -> Written:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Written(name, family.help, family.kind)
    add = metric.samples.append
    for key, value in paced(found.items(), 256):
        if value is None:
            continue
        place = (family.labels, key)
        labels = known.get(place) or known.setdefault(place, dict(zip(family.labels, key, strict=True)))
        if isinstance(value, (int, float)):
            add(Sample(family.name, labels, value))
            continue
        bounds = [(f"{at_most_ns / 1e9:g}", count) for at_most_ns, count in value.at_most]
        for bound, count in (*bounds, ("+Inf", value.count)):
            add(Sample(f"{family.name}_bucket", {**labels, "le": bound}, count))
        add(Sample(f"{family.name}_count", labels, value.count))
        add(Sample(f"{family.name}_sum", labels, value.sum_ns / 1e9))
    return metric


def _word(said: object) -> str:
    """A label's value; empty for what is not known."""
    if isinstance(said, Enum):
        said = said.value
    return "" if said is None else str(said).lower() if isinstance(said, bool) else str(said)


def _clean(text: str) -> str:
    """A label's value. A newline, a quote and a backslash are escaped when it is written; other control characters and
    halves of a surrogate pair, which would cost the whole scrape, are replaced."""
    text = text[:MOST_CHARACTERS]
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
