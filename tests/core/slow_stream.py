"""The stream of the compiled kernel in NumPy, word by word: slow, plain, and on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK, LANES = 1024, 16
SFC = {32: (9, 3, 21), 64: (11, 3, 24)}  # shift right, shift left, rotation (Doty-Humphrey, PractRand)
ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))  # Threefry-4x32
F = np.float32


def threefry(counter: list[object], key: list[int], rounds: int = 13) -> list[NDArray[np.uint32]]:
    """Return the four words of Threefry-4x32 (Salmon et al. 2011, Section 3.3)."""
    keys = [np.uint32(part) for part in key]
    keys.append(np.bitwise_xor.reduce([np.uint32(0x1BD11BDA), *keys]))
    with np.errstate(over="ignore"):
        words = [np.asarray(word, np.uint32) + keys[i] for i, word in enumerate(counter)]
        for number in range(rounds):
            first, second = (1, 3) if number % 2 == 0 else (3, 1)
            for at, by, turn in zip((0, 2), (first, second), ROTATIONS[number % 8], strict=True):
                words[at] = words[at] + words[by]
                turned = (words[by] << np.uint32(turn)) | (words[by] >> np.uint32(32 - turn))
                words[by] = turned ^ words[at]
            if number % 4 == 3:
                times = (number + 1) // 4
                words = [word + keys[(times + i) % 5] for i, word in enumerate(words)]
                words[3] = words[3] + np.uint32(times)
    return words


def sfc(state: list[NDArray[Any]], steps: int, bits: int = 32) -> NDArray[Any]:
    """Return [steps, ...] words of the small fast chaotic generators with `state`: a, b, c and a counter each."""
    a, b, c, counter = state
    right, left, turn = (b.dtype.type(by) for by in SFC[bits])
    words = []
    with np.errstate(over="ignore"):
        for step in range(steps):
            words.append(a + b + (counter + b.dtype.type(step)))
            a, b, c = (
                b ^ (b >> right),
                c + (c << left),
                ((c << turn) | (c >> b.dtype.type(bits - turn))) + words[-1],
            )
    return np.stack(words)


def minus_twice_log(u: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = u.view(np.int32)
    exponent = (bits - np.int32(0x3F3504F3)) >> np.int32(23)
    m = (bits - (exponent << np.int32(23))).view(np.float32)
    s = (m - F(1)) / (m + F(1))
    z = s * s
    series = F(1) + z * (F(0.333333333) + z * (F(0.2) + z * F(0.142857143)))
    return exponent.astype(np.float32) * F(-1.38629436) - F(4) * s * series


def gaussian(radius_word: NDArray[np.uint32], turn: NDArray[np.uint32]) -> list[NDArray[np.float32]]:
    """Return two normal values of two words (Box and Muller)."""
    u = (radius_word >> np.uint32(1)).astype(np.int32).astype(np.float32) * F(2**-31) + F(2**-32)
    radius = np.sqrt(minus_twice_log(u))
    quarter_pi = F(float.fromhex("0x1.921fb6p-1"))
    angle = (turn.view(np.int32) >> np.int32(2)).astype(np.float32) * F(quarter_pi * F(2**-29))
    z = angle * angle
    a, b, c = (F(float.fromhex(text)) for text in ("-0x1.555546p-3", "0x1.11076p-7", "-0x1.994eb4p-13"))
    sine = angle + angle * z * (a + z * (b + z * c))
    a, b, c = (F(float.fromhex(text)) for text in ("0x1.55554ap-5", "-0x1.6c0c8cp-10", "0x1.9a025ap-16"))
    cosine = F(1) - F(0.5) * z + z * z * (a + z * (b + z * c))
    swapped, sign = (turn & 1).astype(bool), np.where(turn & 2, F(-1), F(1))
    first, second = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    return [radius * (sign * first), radius * (sign * second)]


def values(law: str, key: int, example: int, size: int) -> NDArray[np.float32]:
    """Return the values of one example of `size` elements."""
    parts = []
    for chunk in range(-(-size // CHUNK)):
        count = min(CHUNK, size - chunk * CHUNK)
        groups = -(-count // 4)
        nothing = np.zeros(LANES, np.uint32)
        first = nothing + chunk * LANES + np.arange(LANES, dtype=np.uint32)
        state = threefry([first, nothing, nothing + example, nothing], [key & 0xFFFFFFFF, key >> 32, 0, 0])
        words = sfc(state, -(-4 * groups // LANES)).reshape(-1)[: 4 * groups].reshape(4, groups)
        if law == "gaussian":
            drawn = [*gaussian(words[0], words[1]), *gaussian(words[2], words[3])]
        elif law == "uniform":
            drawn = [word.view(np.int32).astype(np.float32) * F(2**-31) for word in words]
        else:
            drawn = [np.where(word >> np.uint32(31), F(-1), F(1)) for word in words]
        parts.append(np.concatenate(drawn)[:count])
    return np.concatenate(parts)
