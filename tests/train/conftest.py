"""What the tests of the trainer share: folders in memory."""

from __future__ import annotations

from running import in_memory

tmp_path = in_memory
