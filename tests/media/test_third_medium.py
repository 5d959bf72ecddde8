"""A medium is one folder and one row in the registry: these alone make every command support it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from calling import call_main
from third_medium import DNA, LETTERS, Letters

from seqmodel.data import batches
from seqmodel.data.dataset import open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.media.registry import MEDIA, definition_from_json


@pytest.fixture
def registered(monkeypatch):
    """Add the row to the registry."""
    monkeypatch.setitem(MEDIA, "dna", DNA)


@pytest.fixture
def corpus(tmp_path):
    random = np.random.default_rng(3)
    for split, count in (("train", 5), ("valid", 2)):
        (tmp_path / "in" / split).mkdir(parents=True)
        for k in range(count):
            text = "".join(random.choice(list(LETTERS), 5 + 3 * k))
            (tmp_path / "in" / split / f"{k}.dna").write_text(text + "\n")
    (tmp_path / "in/train/bad.dna").write_text("hello")
    return tmp_path / "in"


def letters(frames):
    return "".join(LETTERS[k] for k in frames.argmax(axis=1))


def test_a_dataset_of_it_is_prepared_read_and_batched(registered, corpus, tmp_path):
    manifest = prepare(find_sources([str(corpus)]), tmp_path / "out", Letters())
    assert (manifest["media"], manifest["alphabet"]) == ("dna", LETTERS)
    assert [skip["source"] for skip in manifest["skipped"]] == [str(corpus / "train/bad.dna")]
    dataset = open_dataset(tmp_path / "out")
    dataset.check_content()
    assert dataset.frame == definition_from_json("dna", manifest["frame"]) == Letters()
    train = dataset["train"]
    texts = [Path(source).read_text().strip() for source in train.sources]
    assert [letters(frames) for frames in train] == texts
    (first, *_) = map(json.loads, (tmp_path / "out/train.jsonl").read_text().splitlines())
    assert first["guanine"] == texts[0].count("G")

    (plan,) = batches.shuffled(train.lengths, 8, 1, 0)
    plain = batches.load(train, plan)
    varied = batches.load(train, plan, np.arange(len(plan)) % 2)
    opposite = str.maketrans(LETTERS, LETTERS[::-1])
    for k, i in enumerate(plan.tolist()):
        length = len(texts[i])
        assert letters(plain.frames[:length, k]) == texts[i]
        expected = texts[i].translate(opposite) if k % 2 else texts[i]
        assert letters(varied.frames[:length, k]) == expected
        assert not plain.frames[length:, k].any()
    drawn = batches.random_variants(dataset.frame, 1000, 1, 2, 3)
    assert set(drawn.tolist()) == {0, 1}
    figures = DNA.baselines(train, dataset["valid"], dataset.frame, discrete=False)
    assert 0 < figures["marginal"] < 3


def test_a_model_of_it_is_trained_scored_and_sampled(registered, corpus, tmp_path, monkeypatch):
    """From files to new files, through each command, with nothing but the folder and the row."""
    monkeypatch.chdir(tmp_path)
    for command in (
        ("prepare", corpus, "-o", "d"),
        ("train", "d", "--hidden", 3, "--epochs", 1, "--augment-keys", "--run", "r"),
        ("sample", "new.dna", "--run", "r"),
    ):
        result = call_main(*command)
        assert result.status == 0, result.err
    assert result.err == "new.dna: 12 letters from r\n"
    assert set(Path("new.dna").read_text()) <= set(LETTERS)
    told = json.loads(call_main("eval", "r", "--json").out)
    assert (told["pieces"], told["frames"]) == (2, 13)
    assert list(told["baselines"]) == ["marginal"]
    refused = call_main("eval", "r", "--samples", 2)
    assert (refused.status, refused.err) == (
        2,
        "seqmodel: r was trained on dna, whose samples --samples cannot judge: leave it out\n",
    )
    assert "letters, strand as written\n" in call_main("inspect", "r").out
    config = call_main("train", "d", "--print-config").out
    assert "dropout: 0.1\n" in config  # its own preset
