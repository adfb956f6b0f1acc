"""The judge: does a candidate file compute the same function as the reference file?

It imports nothing of the optimizer (only `refold.contract`, which loads reference files), never
imports candidate code into its own process, and judges every candidate by the same rule.
"""

from refold.judge.run import judge
from refold.judge.verdict import Outcome, Status, Verdict

__all__ = ["Outcome", "Status", "Verdict", "judge"]
