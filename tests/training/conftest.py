"""Every test here corrects encoders of sound by draws as short as its recordings."""

import pytest

from seqmodel.model.sound import encoder as encoders


@pytest.fixture(scope="module", autouse=True)
def correct_by_short_draws():
    """Train of these tests is too short to be drawn by."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "MIN_FREE_SECONDS", 0.0)
        yield
