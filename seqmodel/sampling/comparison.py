"""Pieces drawn from a run, compared with the data: what its likelihood does not show."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import Dataset, Split
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.definitions import Classifier, Comparison, PieceSet
from seqmodel.media.registry import medium_of
from seqmodel.media.samples import Progress, no_progress
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Freeze, Sampler, side_by_side


def comparison_of(run: Run, guidance: float | None = None) -> Comparison:
    """The comparison for the run's samples; UsageError if there is none, or no such guidance."""
    run.model.guided(guidance)
    medium = medium_of(run.frame)
    comparison = medium.comparison()
    if comparison is None:
        raise UsageError(
            f"{run.folder} was trained on {medium.name}, whose samples --samples cannot judge: "
            "leave it out"
        )
    return comparison


class Judge(NamedTuple):
    """A classifier of pieces by one of their labels, independent of the run."""

    label: str
    label_index: int
    """The index of the label among those that the run knows."""
    classify: Classifier

    def share(self, pieces: PieceSet, labels: NDArray[np.int64]) -> float | None:
        """The share of pieces with the label that are recognised as in `labels` (pieces, L)."""
        wanted = labels[:, self.label_index]
        return float((self.classify(pieces) == wanted)[wanted > 0].mean()) if wanted.any() else None


def judge_of(run: Run, dataset: Dataset, split: str, label: str) -> Judge:
    """The judge of one of the labels that the run knows, which learns only from its train.

    UsageError if no judge can learn it, or the split is train itself; SeqmodelError if train cannot
    be opened.
    """
    place, train = [*run.model.known_labels].index(label), _training_split(run, dataset)
    if split == train.name:
        raise UsageError("--judge learns from train: name another --split")
    values = train.labels(run.model.known_labels)[:, place]
    return Judge(label, place, comparison_of(run).classifier(train, values))


def compare_samples(
    run: Run,
    dataset: Dataset,
    split: str,
    *,
    number: int,
    seed: int,
    temperature: float = 1.0,
    guidance: float | None = None,
    seconds: float | None = None,
    judge: Judge | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Draw `number` pieces and compare them with `dataset`'s split and the run's training split.

    They are as long as pieces spaced evenly in the split, so that both have the same amount, or
    `seconds` long; a run with `end` ends its pieces itself, at the length of its longest training
    piece, or after `seconds`, at the latest. Samples have the metres and labels of the
    split's pieces. Piece k is piece k of `seqmodel sample` with the same
    seed, temperature, guidance, metre and labels. A `judge` counts those with the requested value
    of its label.

    Returns plain values: see evaluation/README.md. UsageError if the run's medium has no
    comparison, or no piece can be that long; SeqmodelError if the run's training split cannot be
    opened.
    """
    comparison, pieces = comparison_of(run), dataset[split]
    guidance = run.model.encoder.usual_guidance if guidance is None else guidance
    train = _training_split(run, dataset)
    chosen = np.arange(number) * len(pieces) // number
    lengths, metres = pieces.lengths[chosen].tolist(), pieces.metres(chosen)
    known = run.model.known_labels
    labels = pieces.labels(known, chosen)
    lengths_text = f"as long as pieces of {split}"
    if run.config.end:
        lengths, lengths_text = [run.longest_piece] * number, "lengths chosen by the model"
    limit = (
        None if seconds is None else run.sampling(medium_of(run.frame).formats[0], seconds).length
    )
    if limit is not None:
        lengths = [limit] * number
        lengths_text = f"at most {seconds:g} s each" if run.config.end else f"{seconds:g} s each"
    samplers, freeze = dict[bytes, Sampler](), Freeze.of(run)
    drawn, cut_off, frozen, pauses_cut = list[NDArray[Any]](), 0, 0, 0

    def sampler(k: int) -> Sampler:
        conditions = None if metres is None else metres[k]
        key = labels[k].tobytes() + (b"" if conditions is None else conditions.tobytes())
        if key not in samplers:
            model = run.model.conditioned(labels[k].tolist())
            samplers[key] = Sampler(
                model, temperature=temperature, metres=conditions, guidance=guidance
            )
        return samplers[key]

    samples = (
        sampler(k).piece(length, seed=seed, number=k, freeze=freeze)
        for k, length in enumerate(lengths)
    )
    for piece, chunks in side_by_side(samples, sampler(0).threads(number, max(lengths))):
        drawn.append(np.concatenate([*chunks]))
        cut_off += not (piece.ended or piece.frozen)
        frozen += piece.frozen
        pauses_cut += piece.pauses_cut
        progress(len(drawn), number)
    is_train = pieces.name == train.name and run.trained_on(dataset)
    judged = {}
    if judge is not None:
        judged = {
            "label": judge.label,
            "drawn": judge.share(drawn, labels),
            "split": judge.share(pieces, pieces.labels(known)),
        }
    return {
        "pieces": number,
        "frames": sum(map(len, drawn)),
        "seed": seed,
        "temperature": temperature,
        "guidance": guidance,
        "lengths": lengths_text,
        **({"cut_off": cut_off, "frozen": frozen} if run.config.end else {}),
        **({"pauses_cut": pauses_cut} if pauses_cut else {}),
        **({"judge": judged} if judged else {}),
        **comparison.compare(drawn, None if is_train else pieces, train, limit),
    }


def _training_split(run: Run, dataset: Dataset) -> Split:
    """The run's training split: `dataset`'s train, if it is the run's own dataset."""
    if run.trained_on(dataset):
        return dataset["train"]
    try:
        return run.dataset()["train"]
    except SeqmodelError as error:
        raise SeqmodelError(f"--samples needs {run.folder}'s training data: {error}") from error
