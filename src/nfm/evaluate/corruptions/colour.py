"""Changes of colour without chance: brightness, saturation, contrast. Each gives the published bytes.

Near whole numbers the last bit decides about a level, so float64 operations keep the order of scikit-image's
rgb2hsv and hsv2rgb. What can be decided on whole numbers (which channel leads, which sector the hue
is in, which level goes where) is decided on uint8, at a tenth of the cost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.evaluate.corruptions.planes import to_uint8
from nfm.evaluate.keyed import Stream

TINY = 2.0**-1000  # divides 0 to 0, and is below every difference of two levels


def brightness(pixels: Tensor, stream: Stream, added: float) -> Tensor:
    """Add `added` to the value of hue, saturation and value."""
    hue, saturation, value = to_hsv(pixels)
    return from_hsv(hue, saturation, value.add_(added).clamp_(0, 1))


def saturate(pixels: Tensor, stream: Stream, factor: float, added: float) -> Tensor:
    """Multiply the saturation of hue, saturation and value by `factor` and add `added`."""
    hue, saturation, value = to_hsv(pixels)
    return from_hsv(hue, saturation.mul_(factor).add_(added).clamp_(0, 1), value)


def to_hsv(pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue (in sectors, 0 to 6), saturation and value of uint8 (B, 3, H, W): float64 (B, H, W) each."""
    red, green, blue = pixels.unbind(1)
    most, least = (extreme(extreme(red, green), blue) for extreme in (torch.maximum, torch.minimum))
    # Among equal channels the last one leads; a grey pixel counts as red.
    by_blue = ((blue == most) & (least != most)).to(torch.uint8)
    by_green = ((green == most) & (blue != most)).to(torch.uint8)
    by_red = 1 - by_blue - by_green
    after = green * by_red + blue * by_green + red * by_blue
    before = blue * by_red + red * by_green + green * by_blue
    value, spread = _share(most), _share(most) - _share(least)
    ahead = (_share(after) - _share(before)).div_(spread.clamp(min=TINY))
    turn = ahead.add_((by_green * 2 + by_blue * 4).double()).div_(6)
    turn += (turn < 0).double()  # the remainder after division by one turn
    return turn.mul_(6), spread.div_(value.clamp(min=TINY)), value


def _share(levels: Tensor) -> Tensor:
    return levels.double().div_(255)


def from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Return uint8 (B, 3, H, W), truncated: v is the leading level, p the least, q or t the other."""
    sector = hue.to(torch.int32)
    odd = sector & 1
    part = hue.sub_(sector)
    # q = v (1 - f s) in odd sectors, t = v (1 - (1 - f) s) in even ones.
    part = (1 - odd).sub(part).abs_()
    other = to_uint8((1 - part.mul_(saturation)).mul_(value).mul_(255))
    least = to_uint8((1 - saturation).mul_(value).mul_(255))
    most = to_uint8(value * 255)
    return _place(sector.to(torch.uint8), most, other, least)


def _place(sector: Tensor, most: Tensor, other: Tensor, least: Tensor) -> Tensor:
    """Return the channels: red is (v, q, p, p, t, v) in sectors 0 to 5; green lags two sectors, blue four."""
    half = sector >> 1  # 0, 1, 2; and 3 for a hue that rounds to a full turn
    first, second = half & (1 - (half >> 1)), (half >> 1) & (1 - (half & 1))
    zeroth = 1 - first - second
    even = 1 - (sector & 1)
    odd = 1 - even
    early = most * even + other * odd  # red in the first third of the circle: v, q
    middle = other * even + most * odd  # green there: t, v
    return torch.stack(
        [
            early * zeroth + least * first + middle * second,
            middle * zeroth + early * first + least * second,
            least * zeroth + middle * first + early * second,
        ],
        dim=1,
    )


def contrast(pixels: Tensor, stream: Stream, factor: float) -> Tensor:
    """Shrink the distance of each channel from its own mean by `factor`.

    A channel has one mean and 256 levels, so a table of 256 entries says it all. The mean is summed
    pixel by pixel (as NumPy does over leading axes), for at whole numbers its last bit decides.
    """
    batch, channels, height, width = pixels.shape
    planes = pixels.view(batch * channels, height * width)
    mean = planes.double().div_(255).cumsum(1)[:, -1:] / (height * width)
    levels = torch.arange(256, dtype=torch.float64, device=pixels.device) / 255
    tables = to_uint8((levels - mean).mul_(factor).add_(mean).clamp_(0, 1).mul_(255))
    first = torch.arange(0, len(planes) * 256, 256, dtype=torch.int32, device=pixels.device)
    return tables.flatten().index_select(0, (planes + first[:, None]).flatten()).view_as(pixels)
