"""What may be wrong with a study beside its keys and types: found when it is read, not after hours of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from nfm.errors import UsageError
from nfm.reproduce.kinds import MEASURES, check_measure
from nfm.reproduce.measuring import suite_of
from nfm.reproduce.study import Arm, Measure, Scale

Value = TypeVar("Value", bound=Hashable)
WHOLE_ROW = "row"  # the key of an error that is not of one cell


def wrong_scale(name: str, scale: Scale) -> Iterator[str]:
    """Yield what is wrong with the seeds, the watched images and the measures of a scale."""
    yield from (f"{name}.seeds: {seed} is there twice" for seed in _twice(scale.seeds))
    if scale.watch < 0:
        yield f"{name}.watch: expected a number of images, 0 for none, got {scale.watch}"
    if "/" in scale.together or "\\" in scale.together:
        yield f"{name}.together: expected the name of a file without a folder, got {scale.together!r}"
    yield from (f"{name}.measures: {measure.key} is there twice" for measure in _twice(scale.measures))
    for place, measure in enumerate(scale.measures):
        try:
            check_measure(measure)
        except UsageError as error:
            yield f"{name}.measures[{place}]: {error}"


def wrong_arm(arm: Arm, where: str, scales: Mapping[str, Scale]) -> Iterator[str]:
    """Yield what is wrong with the seeds and the published numbers of an arm; all measures must be known."""
    if arm.seeds < 0:
        yield f"{where}.seeds: expected the most seeds at the small scale, 0 for all, got {arm.seeds}"
    columns = _columns(scales)
    if arm.published and columns and len(arm.published) not in columns:
        told = " or ".join(map(str, sorted(columns)))
        yield f"{where}.published: expected {told} numbers, one a column of a table, got {len(arm.published)}"
    for key in arm.errors:
        if key != WHOLE_ROW and not (key.isdecimal() and int(key) < len(arm.published)):
            yield (
                f"{where}.errors: expected {WHOLE_ROW!r}, or the place of one of its {len(arm.published)} published "
                f"numbers counted from 0, got {key!r}"
            )


def _columns(scales: Mapping[str, Scale]) -> set[int]:
    """Return how many columns the tables of suites have; none where a measure has a table of its own."""
    measures: set[Measure] = {measure for scale in scales.values() for measure in scale.measures}
    if any(measure.suite in MEASURES for measure in measures):
        return set()
    return {len(suite_of(measure.suite)) for measure in measures}


def _twice(values: Sequence[Value]) -> list[Value]:
    return [value for value, count in Counter(values).items() if count > 1]
