"""How accurate a rewritten graph is beside the model itself, measured on the example.

A rule's sides are equal in the reals, and the shadow proof bounds what one rule may lose. What a
whole derivation loses on a user's own data is measured here: the model as PyTorch runs it and the
rewritten graph, both against float64, on the example, on the example moved by 1e3 deviations, and
scaled by 1e15 and 1e-15, as far as PyTorch's own results are finite there. The bar: the root mean
square of the errors is at most FACTOR times eager's plus ULPS units in the last place. Where it is
not met, the rule whose step loses most is banned and the graph is rewritten anew without it.

Capture takes PyTorch's normalisations and losses apart, whose arithmetic then differs from theirs
before anything is rewritten: in sums that nearly cancel, by a factor that is a matter of luck. So
eager's error counts as at least that of the graph as captured, which in turn may not be more than
APART times that of the model: or the original is kept.

The batch is cut so that this takes about as long as a few calls of the model.
"""

from refold.accuracy.meter import Accuracy, Inaccurate, Meter

__all__ = ["Accuracy", "Inaccurate", "Meter"]
