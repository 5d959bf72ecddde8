"""Training on notes struck and held: windows know which notes sounded before them."""

import numpy as np
import pytest
import torch

from seqmodel.data import batches
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.model import sequence
from seqmodel.model.build import build_model
from seqmodel.training.update import window_loss


@pytest.mark.parametrize("window", [1, 7, 40])
def test_windows_add_up_whatever_their_length(make_config, struck_dataset, monkeypatch, window):
    """A window that assumed silence before it would consider held notes impossible."""
    torch.manual_seed(0)
    model = build_model(make_config(unit="gru", hidden=9), struck_dataset.frame)
    train = struck_dataset["train"]
    indices, nats, carry = np.arange(len(train)), 0.0, model.start(len(train))
    for begin in range(0, int(train.lengths.max()), window):
        batch = batches.load(train, indices, begin=begin, window=window)
        frames = torch.from_numpy(batch.frames)
        loss = window_loss(model, frames, batch.lengths, carry, train.frames)
        nats, carry = nats + float(loss.nats), loss.after
    pieces = [torch.from_numpy(piece)[:, None] for piece in train]
    with torch.no_grad():
        read = [model.read(piece, model.start(1)) for piece in pieces]
        each = [model.output.nats(model.output(h), x, past).sum() for h, x, past, _ in read]
    assert nats == pytest.approx(float(sum(each)) / train.frames, rel=1e-5)
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window * len(train))
    assert likelihood(model, train).nats_per_frame == pytest.approx(nats, rel=1e-5)
