"""The bundled samples: prepared in the runs folder on first use, and only then."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from seqmodel.data import bundled
from seqmodel.data.bundled import sample_dataset, sample_sources
from seqmodel.data.dataset import MANIFEST, open_dataset


@pytest.mark.parametrize("sample", ["music", "rolls", "speech"])
def test_the_sample_is_prepared_once(tmp_path, monkeypatch, sample):
    path = sample_dataset(tmp_path / "runs", sample)
    dataset = open_dataset(path)
    assert dataset.frame.medium == ("audio" if sample == "speech" else "music")
    assert dataset.frame.onsets is (sample == "music")
    for split in ("train", "valid", "test"):
        assert len(dataset[split]) == len(list((sample_sources(sample) / split).iterdir()))
    assert dataset.manifest["skipped"] == []
    assert dataset.manifest["also_in_another_split"] == []
    monkeypatch.setattr(bundled, "prepare", lambda *args, **_: pytest.fail("prepared again"))
    assert sample_dataset(tmp_path / "runs", sample) == path
    assert sample_sources() == sample_sources("music")


@pytest.mark.parametrize("sample", ["music", "rolls"])
def test_a_sample_of_an_older_version_is_prepared_again(tmp_path, sample):
    """Without metres all of its pieces would silently be taken as 4/4; with onsets, runs on the
    music of before would find no data."""
    manifest = sample_dataset(tmp_path, sample) / MANIFEST
    now = manifest.read_bytes()
    manifest.write_text(json.dumps({k: v for k, v in json.loads(now).items() if k != "metre"}))
    sample_dataset(tmp_path, sample)
    assert manifest.read_bytes() == now


def test_concurrent_first_uses_prepare_the_sample_once(tmp_path, monkeypatch):
    """The slower callers wait and find it prepared."""
    prepare, times = bundled.prepare, []

    def slow(*args, **options):
        times.append(args)
        time.sleep(0.1)
        prepare(*args, **options)

    monkeypatch.setattr(bundled, "prepare", slow)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: sample_dataset(tmp_path / "runs"), range(3)))
    assert found == [tmp_path / "runs" / "sample-music"] * 3
    assert len(times) == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["sample-music"]
