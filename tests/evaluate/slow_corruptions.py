"""The corruptions one image at a time with NumPy, SciPy and Pillow: the oracle of the tests, and what the
benchmark is measured against. Written from the description of each operation, on its own."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

Array = NDArray[Any]  # an image is uint8 (H, W, 3)


class Draws(Protocol):
    """Where the random numbers of one image come from."""

    def uniform(self, shape: tuple[int, ...], purpose: int = 0) -> Array: ...

    def normal(self, shape: tuple[int, ...], purpose: int = 0) -> Array: ...


class FreshDraws:
    """Numbers of a NumPy generator, the purpose left aside."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def uniform(self, shape: tuple[int, ...], purpose: int = 0) -> Array:
        return self.generator.random(shape)

    def normal(self, shape: tuple[int, ...], purpose: int = 0) -> Array:
        return self.generator.standard_normal(shape)


def truncated(values: Array) -> Array:
    return np.uint8(np.clip(values, 0, 1) * 255)


def gaussian_noise(image: Array, draws: Draws, deviation: float) -> Array:
    return truncated(image / 255 + draws.normal(image.shape) * deviation)


def speckle_noise(image: Array, draws: Draws, deviation: float) -> Array:
    return truncated(image / 255 + image / 255 * draws.normal(image.shape) * deviation)


def shot_noise(image: Array, draws: FreshDraws, photons: float) -> Array:
    return truncated(draws.generator.poisson(image / 255 * photons) / photons)


def impulse_noise(image: Array, draws: Draws, share: float) -> Array:
    noisy, hit, salt = image / 255, draws.uniform(image.shape) < share, draws.uniform(image.shape) < 0.5
    noisy[hit & salt] = 1
    noisy[hit & ~salt] = 0
    return truncated(noisy)


def gaussian_blur(image: Array, draws: Draws, sigma: float) -> Array:
    return truncated(ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=4))


def defocus_blur(image: Array, draws: Draws, radius: float, softness: float) -> Array:
    half, reach = (8, 1) if radius <= 8 else (int(radius), 2)
    grid = np.arange(-half, half + 1)
    disk = np.float32(np.hypot(grid[:, None], grid) <= radius)
    disk /= disk.sum()
    bell = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * softness**2))
    bell = np.float32(bell / bell.sum())
    for axis in (1, 0):
        disk = ndimage.correlate1d(disk, bell, axis=axis, mode="mirror", output=np.float32)
    channels = [
        ndimage.correlate(image[..., c] / 255, disk.astype(np.float64), mode="mirror") for c in range(3)
    ]
    return truncated(np.stack(channels, axis=-1))


def clipped_zoom(values: Array, factor: float) -> Array:
    """Enlarge the centre of (H, W, channels) to the full size."""
    height, width = values.shape[:2]
    crop = [int(np.ceil(side / factor)) for side in (height, width)]
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    centre = values[top : top + crop[0], left : left + crop[1]]
    large = ndimage.zoom(centre, (factor, factor, 1), order=1)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


def zoom_blur(image: Array, draws: Draws, stop: float, step: float) -> Array:
    values = np.float32(image / 255)
    factors = np.arange(1, stop, step)
    total = np.zeros_like(values)
    for factor in factors:
        total += clipped_zoom(values, factor)
    return truncated((values + total) / (len(factors) + 1))


def glass_blur(image: Array, draws: Draws, sigma: float, reach: float, rounds: float) -> Array:
    height, width, near = *image.shape[:2], int(reach)
    shaken = gaussian_blur(image, draws, sigma)
    for turn in range(int(rounds)):
        steps = np.int64(draws.uniform((2, height, width), turn + 1) * 2 * near) - near
        for row in range(height - near, near, -1):
            for column in range(width - near, near, -1):
                down, right = steps[:, row, column]
                shaken[row, column] = shaken[row + down, column + right]
    return gaussian_blur(shaken, draws, sigma)


def smear(image: Array, angle: float, radius: float, sigma: float) -> Array:
    """Convolve with a one-sided Gaussian along a line, in whole pixels; (H, W) or (H, W, 3)."""
    count = 2 * int(np.ceil(radius)) + 1
    weights = np.exp(-(np.arange(count) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for step in range(count):
        down = np.ceil(step * np.sin(np.radians(angle)) - 0.5)
        right = np.ceil(step * np.cos(np.radians(angle)) - 0.5)
        rows = np.clip(np.arange(height) + down, 0, height - 1).astype(int)
        columns = np.clip(np.arange(width) + right, 0, width - 1).astype(int)
        total += weights[step] * image[rows[:, None], columns]
    return np.uint8((257 * total + 0.5) // 257)


def motion_blur(image: Array, draws: Draws, radius: float, sigma: float) -> Array:
    return smear(image, draws.uniform((1,))[0] * 90 - 45, radius, sigma)


def snow(
    image: Array, draws: Draws, mean: float, deviation: float, size: float, threshold: float,
    radius: float, sigma: float, kept: float,
) -> Array:  # fmt: skip
    flakes = clipped_zoom((mean + deviation * draws.normal((1, *image.shape[:2]))[0])[..., None], size)[
        ..., 0
    ]
    flakes[flakes < threshold] = 0
    layer = smear(truncated(flakes), draws.uniform((1,), 1)[0] * 90 - 135, radius, sigma)[..., None] / 255
    values = image / 255
    grey = values @ np.array([0.299, 0.587, 0.114])
    whitened = kept * values + (1 - kept) * np.maximum(values, grey[..., None] * 1.5 + 0.5)
    return truncated(whitened + layer + np.rot90(layer, 2))


def frost(image: Array, draws: Draws, kept: float, opacity: float, *, windows: Array) -> Array:
    count, side = windows.shape[0], windows.shape[2]
    number, top, left = np.int64(draws.uniform((3,)) * [count, side - image.shape[0], side - image.shape[1]])
    crop = np.moveaxis(windows[number, :, top : top + image.shape[0], left : left + image.shape[1]], 0, -1)
    return np.uint8(np.clip(kept * image + opacity * crop, 0, 255))


def cloud(draws: Draws, side: int, decay: float) -> Array:
    """Return a diamond-square fractal (side, side) on a torus, from 0 to 1; side: a power of two."""
    drawn = draws.uniform((side, side)) * 2 - 1
    heights = np.zeros((side, side))
    step, rough = side, 100.0
    while step >= 2:
        half = step // 2
        for offsets, near in (
            (((half, half),), ((-half, -half), (-half, half), (half, -half), (half, half))),
            (((0, half), (half, 0)), ((-half, 0), (half, 0), (0, -half), (0, half))),
        ):
            for row, column in offsets:
                rows, columns = np.meshgrid(
                    np.arange(row, side, step), np.arange(column, side, step), indexing="ij"
                )
                mean = (
                    sum(heights[(rows + down) % side, (columns + right) % side] for down, right in near) / 4
                )
                heights[rows, columns] = mean + rough * rough * drawn[rows, columns]
        step, rough = half, rough / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image: Array, draws: Draws, density: float, decay: float) -> Array:
    values = image / 255
    side = 2 ** int(np.ceil(np.log2(max(image.shape[:2]))))
    veiled = values + density * cloud(draws, side, decay)[: image.shape[0], : image.shape[1], None]
    return truncated(veiled * values.max() / (values.max() + density))


def rgb_to_hsv(values: Array) -> tuple[Array, Array, Array]:
    red, green, blue = np.moveaxis(values, -1, 0)
    most, spread = values.max(-1), np.ptp(values, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        hue = (green - blue) / spread
        hue = np.where(green == most, 2 + (blue - red) / spread, hue)
        hue = np.where(blue == most, 4 + (red - green) / spread, hue)
        saturation = np.where(spread == 0, 0, spread / most)
    return np.where(spread == 0, 0, (hue / 6) % 1), saturation, most


def hsv_to_rgb(hue: Array, saturation: Array, value: Array) -> Array:
    sector = np.floor(hue * 6)
    part = hue * 6 - sector
    p, q = value * (1 - saturation), value * (1 - part * saturation)
    t = value * (1 - (1 - part) * saturation)
    ways = [(value, t, p), (q, value, p), (p, value, t), (p, q, value), (t, p, value), (value, p, q)]
    return np.choose(np.int64(sector % 6)[..., None], [np.stack(way, axis=-1) for way in ways])


def brightness(image: Array, draws: Draws, added: float) -> Array:
    hue, saturation, value = rgb_to_hsv(image / 255)
    return truncated(hsv_to_rgb(hue, saturation, np.clip(value + added, 0, 1)))


def saturate(image: Array, draws: Draws, factor: float, added: float) -> Array:
    hue, saturation, value = rgb_to_hsv(image / 255)
    return truncated(hsv_to_rgb(hue, np.clip(saturation * factor + added, 0, 1), value))


def contrast(image: Array, draws: Draws, factor: float) -> Array:
    values = image / 255
    mean = values.mean(axis=(0, 1), keepdims=True)
    return truncated((values - mean) * factor + mean)


def elastic_transform(image: Array, draws: Draws, strength: float, sigma: float, jitter: float) -> Array:
    height, width = image.shape[:2]
    side, middle = min(height, width) // 3, np.array([height // 2, width // 2])
    corners = middle + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + (draws.uniform((3, 2), 1) * 2 - 1) * jitter
    back = np.linalg.solve(
        np.c_[moved, np.ones(3)], corners
    )  # (row, column, 1) of the result -> of the image
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"))
    places = np.einsum("kij,kl->lij", np.concatenate([grid, np.ones((1, height, width))]), back)
    warped = read_at(image, places, "mirror")
    if strength:
        field = draws.uniform((2, height, width), 2) * 2 - 1
        shift = [ndimage.gaussian_filter(f, sigma, mode="reflect", truncate=3) * strength for f in field]
        warped = read_at(warped, grid + np.stack(shift), "reflect")
    return np.uint8(np.clip(warped + 1e-6, 0, 255))


def read_at(image: Array, places: Array, mode: str) -> Array:
    channels = [
        ndimage.map_coordinates(image[..., c].astype(np.float64), places, order=1, mode=mode)
        for c in range(3)
    ]
    return np.stack(channels, axis=-1)


def pixelate(image: Array, draws: Draws, share: float) -> Array:
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Array, draws: Draws, quality: float) -> Array:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.asarray(Image.open(file))


def canny(levels: Array, low: float, high: float) -> Array:
    values = levels.astype(np.int64)
    across = ndimage.sobel(values, axis=1, mode="nearest")
    down = ndimage.sobel(values, axis=0, mode="nearest")
    size = abs(across) + abs(down)
    padded = np.pad(size, 1)
    kept = np.zeros(size.shape, bool)
    for row, column in np.argwhere(size > low):
        x, y, here = abs(across[row, column]), abs(down[row, column]), size[row, column]
        slant = 1 if across[row, column] * down[row, column] >= 0 else -1
        step = (
            (0, 1) if y < x * np.tan(np.pi / 8) else (1, 0) if y > x * np.tan(3 * np.pi / 8) else (1, slant)
        )
        before = padded[row + 1 - step[0], column + 1 - step[1]]
        after = padded[row + 1 + step[0], column + 1 + step[1]]
        kept[row, column] = here > before and (here > after if all(step) else here >= after)
    parts, _ = ndimage.label(kept, structure=np.ones((3, 3)))
    return kept & np.isin(parts, parts[kept & (size > high)])


def spatter(
    image: Array, draws: Draws, mean: float, deviation: float, size: float, threshold: float,
    strength: float, muddy: float,
) -> Array:  # fmt: skip
    noise = mean + deviation * draws.normal(image.shape[:2])
    liquid = ndimage.gaussian_filter(noise, size, mode="nearest", truncate=4)
    liquid[liquid < threshold] = 0
    if muddy:
        cover = ndimage.gaussian_filter(np.float64(liquid > threshold), strength, mode="nearest", truncate=4)
        cover[cover < 0.8] = 0
        mud = np.array([63, 42, 20]) / 255
        return truncated(image / 255 * (1 - cover[..., None]) + cover[..., None] * mud)
    shine = shade(truncated(liquid)) * strength
    return truncated(image / 255 + shine[..., None] * np.array([175, 238, 238]) / 255)


def shade(drops: Array) -> Array:
    edges = canny(drops, 50, 150)
    depth = (
        np.minimum(ndimage.distance_transform_edt(~edges), 20) if edges.any() else np.full(drops.shape, 20.0)
    )
    depth = np.int64(ndimage.uniform_filter(depth, 3, mode="mirror") + 1e-6)
    counts = np.bincount(depth.ravel(), minlength=21)
    first = np.flatnonzero(counts)[0]
    rest = counts.sum() - counts[first]
    levels = np.rint((np.cumsum(counts) - counts[first]) * 255 / rest) if rest else np.arange(21)
    relief = ndimage.correlate(levels[depth], np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    light = drops * np.rint(ndimage.uniform_filter(np.clip(relief, 0, 255).astype(float), 3, mode="mirror"))
    return light / max(light.max(), 1)


SLOW: dict[str, Callable[..., Array]] = {
    made.__name__: made
    for made in (
        gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur, snow, frost,
        fog, brightness, contrast, elastic_transform, pixelate, jpeg_compression, speckle_noise, gaussian_blur,
        spatter, saturate,
    )
}  # fmt: skip
