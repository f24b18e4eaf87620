"""Changes of colour without chance: brightness, saturation, contrast. Each gives the published bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.evaluate.keyed import Stream

TINY = 2.0**-1000  # divides 0 to 0, and is below every difference of two levels
# Which of (value, other, least), packed as three bytes, each channel takes in the six sectors of the hue:
# red is (v, q, p, p, t, v), green (t, v, v, q, p, p), blue (p, p, t, v, v, q), where t and q are `other`.
SHIFTS = ((0, 8, 16, 16, 8, 0, 0), (8, 0, 0, 8, 16, 16, 8), (16, 16, 8, 0, 0, 8, 16))


def brightness(pixels: Tensor, stream: Stream, added: float) -> Tensor:
    """Add `added` to the value of hue, saturation and value."""
    hue, saturation, value = to_hsv(pixels)
    return from_hsv(hue, saturation, value.add_(added).clamp_(0, 1))


def saturate(pixels: Tensor, stream: Stream, factor: float, added: float) -> Tensor:
    """Multiply the saturation of hue, saturation and value by `factor` and add `added`."""
    hue, saturation, value = to_hsv(pixels)
    return from_hsv(hue, saturation.mul_(factor).add_(added).clamp_(0, 1), value)


def to_hsv(pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue (in sectors, 0 to 6), saturation and value of uint8 (B, 3, H, W): float64 (B, H, W) each.

    The order of operations is that of scikit-image's rgb2hsv: among equal channels the last one leads.
    """
    red, green, blue = pixels.double().div_(255).unbind(1)
    value, least = (
        torch.maximum(torch.maximum(red, green), blue),
        torch.minimum(torch.minimum(red, green), blue),
    )
    spread = value - least
    leads = _leads(pixels)
    ahead = (green - blue).mul_(leads[0])
    ahead += (blue - red).mul_(leads[1])
    ahead += (red - green).mul_(leads[2])
    ahead /= spread.clamp(min=TINY)
    turn = (ahead + leads[1].mul_(2) + leads[2].mul_(4)).div_(6)
    turn += turn.lt(0)  # the remainder after division by one turn
    return turn.mul_(6), spread.div_(value.clamp(min=TINY)), value


def _leads(pixels: Tensor) -> list[Tensor]:
    """Return which channel leads, as 0 or 1: float64 (B, H, W) each; a grey pixel counts as red."""
    red, green, blue = pixels.unbind(1)
    lead_blue = (blue >= red) & (blue >= green) & ((blue > red) | (blue > green))
    lead_green = (green >= red) & (green > blue)
    return [lead.double() for lead in (~(lead_blue | lead_green), lead_green, lead_blue)]


def from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Return uint8 (B, 3, H, W), truncated, in the order of operations of scikit-image's hsv2rgb."""
    sector = hue.floor()
    part = hue.sub_(sector)
    odd = sector.remainder(2)
    # q = v (1 - f s) in odd sectors, t = v (1 - (1 - f) s) in even ones.
    part = (1 - part).mul_(1 - odd).add_(part.mul_(odd))
    other = (1 - part.mul_(saturation)).mul_(value)
    least = (1 - saturation).mul_(value)
    packed = _level(value) | _level(other) << 8 | _level(least) << 16
    places = sector.to(torch.int32).flatten()
    shifts = torch.tensor(SHIFTS, dtype=torch.int32, device=hue.device)
    channels = [packed >> shift.index_select(0, places).view_as(packed) for shift in shifts]
    return torch.stack(channels, dim=1).bitwise_and_(255).to(torch.uint8)


def _level(share: Tensor) -> Tensor:
    return (share.clamp(0, 1) * 255).to(torch.int32)


def contrast(pixels: Tensor, stream: Stream, factor: float) -> Tensor:
    """Shrink the distance of each channel from its own mean by `factor`.

    A channel has one mean and 256 levels, so a table of 256 entries says it all. The mean is summed
    pixel by pixel (as NumPy does over leading axes), for at whole numbers its last bit decides.
    """
    batch, channels, height, width = pixels.shape
    planes = pixels.view(batch * channels, height * width)
    mean = (planes.double().div_(255).cumsum(1)[:, -1:] / (height * width)).contiguous()
    levels = torch.arange(256, dtype=torch.float64, device=pixels.device) / 255
    tables = ((levels - mean).mul_(factor).add_(mean).clamp_(0, 1) * 255).to(torch.uint8)
    first = torch.arange(0, len(planes) * 256, 256, dtype=torch.int32, device=pixels.device)
    return tables.flatten().index_select(0, (planes + first[:, None]).flatten()).view_as(pixels)
