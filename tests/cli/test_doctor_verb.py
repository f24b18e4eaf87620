"""`nfm doctor` answers on any machine, and tells which kernel is in use and why."""

from __future__ import annotations

import pytest

from nfm.cli import doctor_verb, main
from nfm.core import compiled


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main(["doctor", *arguments]) == 0
    lines = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[0] != " ")
    return dict(lines)


def test_it_tells_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    table = told(capsys, "--quick")
    assert {"nfm", "python", "torch", "numpy", "cuda", "threads", "kernel", "disk", "optional"} <= set(table)
    assert "bf16" not in table


@pytest.mark.parametrize(
    ("name", "expected"), [("torch", "torch (NFM_KERNEL=torch)"), ("tosch", "none: NFM_KERNEL")]
)
def test_it_tells_which_kernel_was_asked_for(name: str, expected: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("NFM_KERNEL", name)
    assert told(capsys, "--quick")["kernel"].startswith(expected)


def test_it_tells_why_there_is_no_compiled_kernel(capsys, monkeypatch) -> None:
    monkeypatch.setattr(compiled, "problem", lambda: "it was not built")
    monkeypatch.delenv("NFM_KERNEL", raising=False)
    assert told(capsys, "--quick")["kernel"] == "torch (it was not built)"


CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def test_a_crash_of_the_trial_is_told_with_what_avoids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_verb, "BF16_TRIAL", "pass")
    assert doctor_verb._bf16() == "a convolution works"
    monkeypatch.setattr(doctor_verb, "BF16_TRIAL", CRASH)
    assert doctor_verb._bf16() == "a convolution ends with Illegal instruction: use float32"
    monkeypatch.setattr(
        doctor_verb, "BF16_TRIAL", f"import os\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ:\n {CRASH}"
    )
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 avoids it" in doctor_verb._bf16()
