"""Ways of training that go through their networks in step, layer by layer: one of them works at a time.

Whatever slows the machine for longer than a layer takes slows all of them alike. Of steps of a second, one after the
other, a ratio tells as much of the machine as of the steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from torch import Tensor, nn

from benchmarks.networks import Work


class Lockstep:
    """Runs some works in a thread each; after each layer of `networks`, forward and backward, the next one goes on."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self._here = threading.local()
        for network in networks:
            for layer in network.modules():
                if not list(layer.children()) and list(layer.parameters()):
                    layer.register_forward_hook(self._after_layer)

    def seconds(self, works: Sequence[Work], *, first: int = 0) -> list[float]:
        """Return how long each of `works` was at work; `first` tells which of them begins."""
        self._seconds, self._errors = [0.0] * len(works), list[BaseException]()
        self._gates = [threading.Semaphore(0) for _ in works]
        self._left = list(range(len(works)))
        threads = [threading.Thread(target=self._run, args=item) for item in enumerate(works)]
        for thread in threads:
            thread.start()
        self._gates[first].release()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self._seconds

    def _run(self, number: int, work: Work) -> None:
        self._here.number = number
        self._wait(number)
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
        following = self._stop(number)
        self._left.remove(number)
        if following != number:
            self._gates[following].release()

    def _after_layer(self, _: nn.Module, __: object, output: Tensor) -> None:
        self._take_turns()
        if output.requires_grad:
            output.register_hook(lambda _: self._take_turns())

    def _take_turns(self) -> None:
        number = self._here.number
        self._gates[self._stop(number)].release()
        self._wait(number)

    def _wait(self, number: int) -> None:
        self._gates[number].acquire()
        self._began = time.perf_counter()

    def _stop(self, number: int) -> int:
        """Stop the clock of a work; return who goes on: the next that is not done, in a circle."""
        self._seconds[number] += time.perf_counter() - self._began
        return self._left[(self._left.index(number) + 1) % len(self._left)]
