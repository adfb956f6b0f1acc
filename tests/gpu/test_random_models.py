"""Random models as emitted for CUDA, in every state they can be in, against the originals."""

from __future__ import annotations

import pytest

from test_random_models import COMPILED, check, text_of

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("seed", COMPILED)
def test_random_models(seed: int) -> None:
    check(text_of(seed), "cuda:sm_90")
