"""Read pickles that hold numbers and names alone. A pickle is a program; this one may build nothing else."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from nfm.errors import DataError

ARRAY = object()  # stands for numpy.ndarray, which called on a shape could take all memory

# What a pickled array names; numpy 1 and 2 keep the rebuilding function in different modules.
NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): ARRAY,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, codec: str(text).encode(
        "latin-1"
    ),  # bytes, of Python 3 in protocol 2
    ("numpy.core.multiarray", "_reconstruct"): lambda kind, shape, code: _empty_array(kind, shape),
    ("numpy._core.multiarray", "_reconstruct"): lambda kind, shape, code: _empty_array(kind, shape),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise DataError(f"the pickle asks for {module}.{name}; only numpy arrays and plain data are read")
        return NAMES[module, name]


def _empty_array(kind: object, shape: object) -> np.ndarray[Any, Any]:
    """Return the empty array that every pickled array starts from."""
    if kind is not ARRAY or shape != (0,):
        raise DataError(f"the pickle builds an array of shape {shape!r} from nothing; expected an empty one")
    return np.empty(0, dtype=np.uint8)


def read_pickle(content: bytes, where: object) -> dict[str, Any]:
    """Return the dictionary pickled in `content`, its keys as str; refuse what is more than plain data."""
    try:
        found = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{where}: {error}; the file is hostile or not what it is called") from None
    except Exception as error:  # a torn pickle can raise nearly anything
        raise DataError(f"{where}: expected a pickle, got {type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: expected a pickled dictionary, got {type(found).__name__}")
    return {key.decode("latin-1") if isinstance(key, bytes) else str(key): found[key] for key in found}
