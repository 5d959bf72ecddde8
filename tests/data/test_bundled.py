"""The bundled samples: prepared in the runs folder on first use, and only then."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from seqmodel.data import bundled
from seqmodel.data.bundled import PREPARED, sample_dataset, sample_sources
from seqmodel.data.dataset import MANIFEST, open_dataset


@pytest.mark.parametrize("sample", PREPARED)
def test_a_sample_is_prepared_once_and_anew_if_it_is_of_an_older_version(
    tmp_path, monkeypatch, sample
):
    """Concurrent first uses wait for one. Without metres all pieces would be taken as 4/4."""
    prepare, times = bundled.prepare, []

    def slow(*args, **options):
        times.append(args)
        time.sleep(0.1)
        prepare(*args, **options)

    monkeypatch.setattr(bundled, "prepare", slow)
    with ThreadPoolExecutor(3) as pool:
        found = {*pool.map(lambda _: sample_dataset(tmp_path / "runs", sample), range(3))}
    (path,) = found
    assert path == sample_dataset(tmp_path / "runs", sample)
    assert [*(tmp_path / "runs").iterdir()] == [path]
    assert len(times) == 1
    dataset = open_dataset(path)
    assert dataset.frame.medium == ("audio" if sample == "speech" else "music")
    assert dataset.frame.onsets is (sample == "music")
    for split in ("train", "valid", "test"):
        assert len(dataset[split]) == len(list((sample_sources(sample) / split).iterdir()))
    assert dataset.manifest["skipped"] == dataset.manifest["also_in_another_split"] == []
    if sample == "rolls":  # as the others, but sooner prepared
        older = {name: value for name, value in dataset.manifest.items() if name != "metre"}
        (path / MANIFEST).write_text(json.dumps(older))
        sample_dataset(tmp_path / "runs", sample)
        assert open_dataset(path).manifest == dataset.manifest
