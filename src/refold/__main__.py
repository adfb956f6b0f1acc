"""`python -m refold`: the same as the command `refold`."""

from refold.cli import main

raise SystemExit(main())
