"""A polite end: a signal is remembered, and the loop stops after the step it is in."""

from __future__ import annotations

import signal
import threading
from types import FrameType

CAUGHT = (signal.SIGTERM, signal.SIGINT)


class StopFlag:
    """Remember the first SIGTERM or SIGINT while inside; the handlers before are put back at the end.

    A handler runs between any two instructions, so it does nothing but set a flag.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in CAUGHT}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # None: a handler that Python did not set and cannot put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
