"""``python -m nfm`` is ``nfm``; torchrun starts it so."""

from nfm.cli import main

raise SystemExit(main())
