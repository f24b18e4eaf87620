"""Gaussian values without a compiler: Box and Muller's formula on the words of a generator, finite for every word."""

from __future__ import annotations

import numpy as np
import pytest
import slow_stream
from numpy.typing import NDArray

from nfm.core import laws

START, LEVEL = np.array([11, 12, 13], np.uint64), 0.4


def drawn(size: int) -> NDArray[np.float32]:
    out = np.full(size, np.nan, np.float32)
    laws.LAWS["gaussian"].fill_block(out, START, LEVEL)
    return out


def words_from(start: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Return words of 64 bits of SFC64 from `start` and a counter of 1, behind the twelve rounds that nobody sees."""
    state = [np.array([word], np.uint64) for word in (*start, 1)]
    return np.ascontiguousarray(slow_stream.sfc(state, 12 + count, bits=64)[12:, 0])


def by_formula(size: int, level: float = LEVEL) -> NDArray[np.float64]:
    """Return what the words of the start give in double precision: radius * cos(angle), then radius * sin(angle)."""
    pairs = size // 2
    words = words_from(START, -(-6 * pairs // 8))
    lengths, turns = words.view(np.int32)[:pairs], words.view(np.int16)[2 * pairs : 3 * pairs]
    radius = level * np.sqrt(-2 * np.log(np.abs((lengths | 1).astype(np.float64)) / 2**31))
    angle = np.pi * turns / 2**15
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


def test_words_are_those_of_the_generator_from_its_start() -> None:
    words = laws._words(START, 101 * 8 - 1)
    assert np.array_equal(words, words_from(START, 101))
    for place in range(3):
        other = START.copy()
        other[place] += np.uint64(1)
        assert not np.array_equal(laws._words(other, 101 * 8 - 1), words)


@pytest.mark.parametrize("size", [2, 1000, 2**14])
def test_values_are_those_of_the_formula(size: int) -> None:
    np.testing.assert_allclose(drawn(size), by_formula(size), atol=1e-5)  # small radii have few digits
    assert np.abs(drawn(size) - by_formula(size, level=1.01 * LEVEL)).max() > 1e-4


def test_an_odd_number_of_values_lacks_the_last_of_one_more() -> None:
    assert np.array_equal(drawn(999), drawn(1000)[:-1])
    assert not np.array_equal(drawn(999), drawn(1000)[1:])


@pytest.mark.parametrize("word", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_every_word_gives_a_finite_value(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        laws, "_words", lambda start, size: np.full(-(-size // 8) * 2, word, np.int32).view(np.uint64)
    )
    values = drawn(64)
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 7 * LEVEL


def test_angles_lean_to_no_side() -> None:
    """Over all 65,536 directions neither value has a mean, both have one variance, and they do not go together."""
    angles = np.pi * np.arange(-(2**15), 2**15) / 2**15
    pairs = np.stack([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(pairs.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(pairs, bias=True), np.eye(2) / 2, atol=1e-12)
    assert abs(np.cos(angles[1:-1000]).mean()) > 1e-4
