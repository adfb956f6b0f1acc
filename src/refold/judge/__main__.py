"""``python -m refold.judge REF.py CAND.py``."""

from refold.judge.ask.cli import main

raise SystemExit(main())
