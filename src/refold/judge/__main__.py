"""``python -m refold.judge REF.py CAND.py``."""

from refold.judge.cli import main

raise SystemExit(main())
