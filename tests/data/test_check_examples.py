"""Bad examples are refused by index."""

from dataclasses import replace

import pytest
import torch

from nfm.data import Examples, check_examples
from nfm.errors import DataError


def changed(examples: Examples, /, **fields: object) -> Examples:
    return replace(examples, **fields)  # type: ignore[arg-type]


def label(images: Examples, value: int) -> torch.Tensor:
    labels = images.labels.clone()
    labels[17] = value
    return labels


def test_good_examples_pass(images: Examples) -> None:
    check_examples(images, 3)
    check_examples(changed(images, images=images.images.float() / 255), 3)
    check_examples(changed(images, images=torch.randn(60, 5)), 3)
    check_examples(changed(images, labels=torch.full((60, 3), 1 / 3)), 3)


@pytest.mark.parametrize("value", [3, -1, -100])
def test_a_label_out_of_range_is_refused_by_index(images: Examples, value: int) -> None:
    with pytest.raises(DataError, match=rf"from 0 to 2, got {value} at index 17 \(1 bad"):
        check_examples(changed(images, labels=label(images, value)), 3)


def test_lengths_that_differ_are_refused(images: Examples) -> None:
    with pytest.raises(DataError, match="59 labels"):
        check_examples(changed(images, labels=images.labels[:59]), 3)
    with pytest.raises(DataError, match="58 ids"):
        check_examples(changed(images, ids=images.ids[:58]), 3)


def test_no_examples_are_refused(images: Examples) -> None:
    with pytest.raises(DataError, match="at least one example"):
        check_examples(images.subset(torch.empty(0, dtype=torch.int64)), 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(60, 3, 8, 8), (60, 5)])
def test_a_number_that_is_none_is_refused_by_index(
    images: Examples, value: float, shape: tuple[int, ...]
) -> None:
    pixels = torch.zeros(shape)
    pixels[41, -1] = value
    with pytest.raises(DataError, match="at index 41"):
        check_examples(changed(images, images=pixels), 3)


@pytest.mark.parametrize(
    ("low", "high", "reason"), [(0, 255, "store them as uint8"), (-2, 2, "look normalised")]
)
def test_floats_out_of_range_are_refused_with_the_reason(
    images: Examples, low: float, high: float, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        check_examples(changed(images, images=torch.linspace(low, high, 60 * 3 * 64).view(60, 3, 8, 8)), 3)


@pytest.mark.parametrize("shape", [(60, 8, 8), (60,), (60, 3, 0, 8)])
def test_wrong_shapes_are_refused(images: Examples, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="expected images uint8"):
        check_examples(changed(images, images=torch.zeros(shape, dtype=torch.uint8)), 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float64])
def test_other_kinds_of_pixels_are_refused(images: Examples, dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match="expected images uint8"):
        check_examples(changed(images, images=torch.zeros(60, 3, 8, 8, dtype=dtype)), 3)


def test_probabilities_must_be_some(images: Examples) -> None:
    rows = torch.full((60, 3), 1 / 3)
    rows[5, 0] += 0.01
    with pytest.raises(DataError, match=r"sum to 1, got 1\.01 at index 5"):
        check_examples(changed(images, labels=rows), 3)
    with pytest.raises(DataError, match="from 0 to 1"):
        check_examples(changed(images, labels=torch.tensor([[-1.0, 1, 1]] * 60)), 3)
    with pytest.raises(DataError, match=r"\(n,3\), got \(60, 4\)"):
        check_examples(changed(images, labels=torch.full((60, 4), 0.25)), 3)
    with pytest.raises(DataError, match="expected labels int64"):
        check_examples(changed(images, labels=torch.zeros(60)), 3)


def test_an_empty_class_is_a_warning(images: Examples) -> None:
    with pytest.warns(UserWarning, match="1 of 4 classes have no example: 3"):
        check_examples(images, 4)
