"""`python -m refold`: the same as the command `refold`."""

from refold.entry import main

raise SystemExit(main())
