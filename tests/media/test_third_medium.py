"""A medium is one folder and one row in the registry: these alone make every command support it."""

import json
from pathlib import Path

import numpy as np
import pytest
from calling import call_main, call_ok
from third_medium import DNA, LETTERS, Letters

from seqmodel.data import batches
from seqmodel.data.dataset import open_dataset
from seqmodel.media.registry import MEDIA, definition_from_json


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


def check_dataset(corpus, folder):
    """That its pieces are read, batched and varied as they are in the files."""
    dataset = open_dataset(folder)
    dataset.check_content()
    manifest = dataset.manifest
    assert (manifest["media"], manifest["alphabet"]) == ("dna", LETTERS)
    assert [skip["source"] for skip in manifest["skipped"]] == [str(corpus / "train/bad.dna")]
    assert dataset.frame == definition_from_json("dna", manifest["frame"]) == Letters()
    train = dataset["train"]
    texts = [Path(source).read_text().strip() for source in train.sources]
    assert [train.facts(k)["guanine"] for k in range(5)] == [text.count("G") for text in texts]
    varied = batches.load(train, np.arange(5), np.arange(5) % 2)
    opposite = str.maketrans(LETTERS, LETTERS[::-1])
    for k, text in enumerate(texts):
        assert letters(train[k]) == text
        expected = text.translate(opposite) if k % 2 else text
        assert letters(varied.frames[: len(text), k]) == expected


@pytest.mark.usefixtures("unoptimised")
def test_a_model_of_it_is_trained_scored_and_sampled(corpus, tmp_path, monkeypatch):
    """From files to new files, through each command, with nothing but the folder and the row."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MEDIA, "dna", DNA)
    for command in (
        ("prepare", corpus, "-o", "d"),
        ("train", "d", "--hidden", 3, "--epochs", 1, "--augment-keys", "--run", "r"),
        ("sample", "new.dna", "--run", "r"),
    ):
        result = call_ok(*command)
    check_dataset(corpus, "d")
    assert result.err == "new.dna: 12 letters from r\n"
    assert set(Path("new.dna").read_text()) <= set(LETTERS)
    told = json.loads(call_ok("eval", "r", "--json").out)
    assert (told["pieces"], told["frames"]) == (2, 13)
    assert 0 < told["baselines"].pop("marginal") < 3
    assert not told["baselines"]
    refused = call_main("eval", "r", "--samples", 2)
    assert (refused.status, refused.err) == (
        2,
        "seqmodel: r was trained on dna, whose samples --samples cannot judge: leave it out\n",
    )
    assert "letters, strand as written\n" in call_ok("inspect", "r").out
    assert call_ok("inspect", "d").out.startswith("d: dataset of letters, strand as written\n")
    call_ok("inspect", next(Path(corpus).rglob("*.dna")))
    refused = call_main("export", "r", "r.html")
    assert refused.err == "seqmodel: r.html: r was trained on dna, which has no page\n"
    config = call_ok("train", "d", "--print-config").out
    assert "dropout: 0.1\n" in config  # its own preset
