"""Training on any device: noise, the optimizer's state, checkpoints moved between devices."""

import pytest
import torch

from seqmodel.kernels import noise
from seqmodel.model.build import build_model
from seqmodel.runs.checkpoint import load_checkpoint
from seqmodel.runs.folder import BEST, LAST, load_run
from seqmodel.training.loop import train_run
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.update import weight_noise

CUDA = torch.device("cuda")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
OPTIONS = {"weight_noise": 0.05, "dropout": 0.2, "average": 0.9, "truncate": 2, "layers": 2}


def test_noise_on_other_devices_is_not_compiled(make_config, dataset, monkeypatch):
    """Compiled code writes to a raw address: with a GPU tensor's, that could be anywhere."""
    monkeypatch.setattr(noise, "normals", lambda count: pytest.fail("compiled code was called"))
    model = build_model(make_config(), dataset.frame).to("meta")
    with weight_noise(model, 0.1):
        assert all(weight.device.type == "meta" for weight in model.parameters())


@needs_cuda
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_run_moves_between_devices(tmp_path, make_config, dataset, optimizer):
    """Started on a GPU, stopped between two windows, resumed on the CPU, finished on the GPU."""
    config = make_config(**OPTIONS, optimizer=optimizer, epochs=2)
    for device in (CUDA, torch.device("cpu")):
        stop = StopRequest()
        stop.signal = 2
        resume = device != CUDA
        with pytest.raises(InterruptError):
            train_run(config, dataset, tmp_path, device=device, resume=resume, stop=stop)
        tensors, content = load_checkpoint(tmp_path / LAST)
        assert all(tensor.device.type == "cpu" for tensor in tensors.values())
        assert content["place"]["window"] > 0
    progress = train_run(config, dataset, tmp_path, device=CUDA, resume=True)
    assert progress.epoch == 2
    assert load_run(tmp_path, CUDA).nll(dataset["valid"][0]).shape == (13,)
    assert "cuda" not in str(load_checkpoint(tmp_path / BEST)[1])


@needs_cuda
def test_the_same_seed_gives_the_same_run_on_a_gpu(tmp_path, make_config, dataset):
    config = make_config(**OPTIONS, epochs=1)
    for name in ("a", "b"):
        torch.randn(5, device=CUDA)
        train_run(config, dataset, tmp_path / name, device=CUDA)
    a, b = (load_checkpoint(tmp_path / name / BEST)[0] for name in ("a", "b"))
    assert all(torch.equal(a[name], b[name]) for name in a)
