"""``python -m nfm`` is ``nfm``; torchrun starts it so."""

from nfm.cli import command

raise SystemExit(command())
