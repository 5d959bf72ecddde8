"""The bundled samples: prepared where one works on first use, and only then."""

import pytest

from seqmodel.data import bundled
from seqmodel.data.bundled import sample_dataset, sample_sources
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError


@pytest.mark.parametrize("sample", ["music", "speech"])
def test_the_sample_is_prepared_once(tmp_path, monkeypatch, sample):
    path = sample_dataset(tmp_path / "runs", sample)
    dataset = open_dataset(path)
    assert dataset.frame.medium.name == ("audio" if sample == "speech" else "music")
    for split in ("train", "valid", "test"):
        assert len(dataset[split]) == len(list((sample_sources(sample) / split).iterdir()))
    assert dataset.manifest["skipped"] == []
    assert dataset.manifest["also_in_another_split"] == []
    monkeypatch.setattr(bundled, "prepare", lambda *args: pytest.fail("prepared again"))
    assert sample_dataset(tmp_path / "runs", sample) == path
    assert sample_sources() == sample_sources("music")


@pytest.mark.parametrize("finished", [True, False])
def test_two_processes_may_prepare_it_at_once(tmp_path, monkeypatch, finished):
    """The slower one finds it there; an error of any other kind is still an error."""
    prepare = bundled.prepare

    def slower(*args):
        if finished:
            prepare(*args)
        raise SeqmodelError("exists already")

    monkeypatch.setattr(bundled, "prepare", slower)
    if finished:
        open_dataset(sample_dataset(tmp_path))
    else:
        with pytest.raises(SeqmodelError):
            sample_dataset(tmp_path)
