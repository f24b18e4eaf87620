"""The compiled kernel, ``kernel.c``: found, checked and called. The package builds it where there is a C compiler.

It works on float32 features (and halves, widened) on the CPU, contiguous or channels last. A call lets go of Python's
lock. Its threads are OpenMP's, where torch has them: they spin for a while after each of torch's operations, and would
only be in the way of others. They do not survive a fork; then, and without OpenMP, a call makes its own and ends them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor

from nfm.core.mixing import Pairing
from nfm.core.noise_plan import NoisePlan, Source
from nfm.core.pages import fresh_like

LIBRARY = Path(__file__).with_name("_kernel.so")
SOURCE = Path(__file__).with_name("kernel.c")
LAWS = {"gaussian": 1, "uniform": 2, "rademacher": 3}  # as in kernel.c, where 0 is no noise
CARRIED = (torch.float32, torch.float16, torch.bfloat16)  # halves by way of float32
NOISY_A_THREAD, MIXED_A_THREAD = 2**13, 2**15  # elements: fewer are done sooner by one thread alone
TO_MAKE_A_THREAD = 8  # times as many, where threads must be made first


class _Noise(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_uint64), ("level", ctypes.c_float), ("scale", ctypes.c_float), ("law", ctypes.c_int32),
    )  # fmt: skip


_NO_NOISE = _Noise()


class _Job(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_void_p), ("input", ctypes.c_void_p), ("other", ctypes.c_void_p),
        ("own_parts", ctypes.c_void_p),
        ("examples", ctypes.c_int64), ("size", ctypes.c_int64), ("channels", ctypes.c_int64),
        ("own_part", ctypes.c_float),
        ("transposed", ctypes.c_int32), ("threads", ctypes.c_int32), ("team", ctypes.c_void_p),
        ("add", _Noise), ("mult", _Noise), ("touch", _Noise), ("untouched", ctypes.c_float), ("path", ctypes.c_void_p),
    )  # fmt: skip


class _Pasting(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_void_p), ("input", ctypes.c_void_p), ("source", ctypes.c_void_p),
        ("examples", ctypes.c_int64), ("planes", ctypes.c_int64), ("rows", ctypes.c_int64), ("row", ctypes.c_int64),
        ("top", ctypes.c_int64), ("bottom", ctypes.c_int64), ("left", ctypes.c_int64), ("right", ctypes.c_int64),
        ("threads", ctypes.c_int32), ("team", ctypes.c_void_p),
    )  # fmt: skip


class _Cutting(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_void_p), ("input", ctypes.c_void_p), ("corners", ctypes.c_void_p),
        ("mirrored", ctypes.c_void_p),
        ("examples", ctypes.c_int64), ("planes", ctypes.c_int64), ("rows", ctypes.c_int64), ("columns", ctypes.c_int64),
        ("height", ctypes.c_int64), ("width", ctypes.c_int64),
        ("threads", ctypes.c_int32), ("team", ctypes.c_void_p),
    )  # fmt: skip


class _Levels(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_void_p), ("input", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("table", ctypes.c_void_p),
        ("examples", ctypes.c_int64), ("size", ctypes.c_int64), ("threads", ctypes.c_int32), ("team", ctypes.c_void_p),
    )  # fmt: skip


def digest(source: bytes) -> int:
    """Return the number by which a library knows its source; the build passes it to the compiler."""
    return int.from_bytes(hashlib.sha256(source).digest()[:8], "little")


@functools.cache
def problem() -> str:
    """Return why the kernel cannot be used here, or nothing if it can."""
    if not LIBRARY.exists():
        return "it was not built: no working C compiler was found when nfm was installed"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.nfm_digest.restype = ctypes.c_uint64
        built_from = library.nfm_digest()
    except (OSError, AttributeError) as error:
        return f"it does not load: {error}"
    if built_from != digest(SOURCE.read_bytes()):
        return "it was built from another kernel.c: install nfm again"
    return ""


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    library.nfm_mix_noise.argtypes = [ctypes.POINTER(_Job)]
    library.nfm_mix_noise.restype = ctypes.c_int
    library.nfm_paste_box.argtypes = [ctypes.POINTER(_Pasting)]
    library.nfm_paste_box.restype = None
    library.nfm_cut_windows.argtypes = [ctypes.POINTER(_Cutting)]
    library.nfm_cut_windows.restype = None
    library.nfm_draw_levels.argtypes = [ctypes.POINTER(_Levels)]
    library.nfm_draw_levels.restype = None
    library.nfm_fill.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
    ]  # fmt: skip
    library.nfm_fill.restype = None
    return library


_FORKED: list[bool] = []  # not empty in a forked process
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


@functools.cache
def _team() -> int | None:
    """Return the address of GOMP_parallel in torch's own library, which lets OpenMP's threads work; None without it."""
    if any(f"{prefix}_STACKSIZE" in os.environ for prefix in ("OMP", "GOMP", "KMP")):
        return None  # the kernel needs some 200 kB
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except AttributeError:
        return None


def _team_here() -> int | None:
    return None if _FORKED else _team()


def fill(out: Tensor, source: Source, *, size: int, first: int) -> Tensor:
    """Fill `out`, contiguous float32, with the values of `source` from place `first` on, `size` to an example."""
    _library().nfm_fill(out.data_ptr(), LAWS[source.law], source.key, size, first, first + out.numel())
    return out if source.level == 1 else out.mul_(source.level)


def carries(x: Tensor, plan: NoisePlan) -> bool:
    """Tell whether the kernel can do all of it in one pass: by settings, dtype and memory format alone."""
    ordered = x.is_contiguous() or _channels_last(x)
    return ordered and x.dtype in CARRIED and x.numel() > 0 and plan.fine(x.shape)


def _channels_last(x: Tensor) -> bool:
    return (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)) or (
        x.ndim == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)
    )


def mix_noise(x: Tensor, pairing: Pairing, plan: NoisePlan) -> Tensor:
    """Return `x` mixed and perturbed."""
    return _run(x, pairing, plan, transposed=False)


def mix_noise_transposed(g: Tensor, pairing: Pairing, plan: NoisePlan) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output; the noise is drawn again."""
    return _run(g, pairing, plan.linear_part(), transposed=True)


def _run(x: Tensor, pairing: Pairing, plan: NoisePlan, *, transposed: bool) -> Tensor:
    if x.dtype != torch.float32:
        return _run(x.float(), pairing, plan, transposed=transposed).to(x.dtype)
    out, own, team = fresh_like(x), pairing.number, _team_here()
    order = None if own == 1 else pairing.inverse if transposed else pairing.partner
    parts = pairing.weight.to(torch.float32).contiguous() if own is None else None
    noises = () if plan.silent else (
        _noise(plan.add, plan.scale), _noise(plan.mult), _noise(plan.touch), 2 * plan.sparsity,
    )  # fmt: skip
    job = _Job(
        out.data_ptr(), x.data_ptr(), None if order is None else order.data_ptr(),
        None if parts is None else parts.data_ptr(),
        x.shape[0], x.numel() // x.shape[0], 1 if x.is_contiguous() else x.shape[1],
        own or 0.0, transposed, _threads(x, NOISY_A_THREAD if noises else MIXED_A_THREAD, team), team, *noises,
    )  # fmt: skip
    if not _library().nfm_mix_noise(ctypes.byref(job)):
        raise MemoryError(f"no memory for the order of {x.shape[0]} examples")
    return out


def pastes(x: Tensor) -> bool:
    """Tell whether the kernel can paste boxes of `x`: images on the CPU, of any dtype, contiguous or channels last."""
    return x.device.type == "cpu" and x.numel() > 0 and (x.is_contiguous() or _channels_last(x))


def paste_box(x: Tensor, source: Tensor, box: tuple[int, int, int, int]) -> Tensor:
    """Return `x` [n, channels, height, width] with one box (top, bottom, left, right) of x[source]."""
    top, bottom, left, right = box
    out, team = fresh_like(x), _team_here()
    n, channels, height, width = x.shape
    planes, pixel = (channels, 1) if x.is_contiguous() else (1, channels)
    pixel *= x.element_size()
    job = _Pasting(
        out.data_ptr(), x.data_ptr(), source.data_ptr(), n, planes, height, width * pixel,
        top, bottom, left * pixel, right * pixel, _threads(x, MIXED_A_THREAD, team), team,
    )  # fmt: skip
    _library().nfm_paste_box(ctypes.byref(job))
    return out


def cut_windows(images: Tensor, corners: Tensor, size: tuple[int, int], mirrored: Tensor) -> Tensor:
    """Return windows [n, channels, *size] of images, uint8 [n, channels, rows, columns], each at a corner [n, 2]."""
    team = _team_here()
    n, channels, *shape = images.shape
    out = images.new_empty(n, channels, *size)
    job = _Cutting(
        out.data_ptr(), images.data_ptr(), corners.data_ptr(), mirrored.data_ptr(), n, channels, *shape, *size,
        _threads(out, MIXED_A_THREAD, team), team,
    )  # fmt: skip
    _library().nfm_cut_windows(ctypes.byref(job))
    return out


def draw_levels(pixels: Tensor, keys: Tensor, table: Tensor) -> Tensor:
    """Return new levels of `pixels`, uint8 [n, ...], drawn by `keys` [n] from an alias table, int32 [256 * 256]."""
    pixels, keys, team = pixels.contiguous(), keys.contiguous(), _team_here()
    out = torch.empty_like(pixels)
    job = _Levels(
        out.data_ptr(), pixels.data_ptr(), keys.data_ptr(), table.data_ptr(), len(keys),
        pixels.numel() // len(keys), _threads(pixels, NOISY_A_THREAD, team), team,
    )  # fmt: skip
    _library().nfm_draw_levels(ctypes.byref(job))
    return out


def _threads(x: Tensor, each: int, team: int | None) -> int:
    """Return how many threads `x` is worth, if each is to have `each` elements to work on."""
    if (
        team is not None
    ):  # all or one: OpenMP ends those that a smaller team leaves out, and torch makes them again
        return torch.get_num_threads() if x.numel() >= 2 * each else 1
    return max(1, min(torch.get_num_threads(), x.numel() // (TO_MAKE_A_THREAD * each)))


def _noise(source: Source | None, scale: float = 1.0) -> _Noise:
    if source is None:
        return _NO_NOISE
    return _Noise(source.key, source.level, scale, LAWS[source.law])
