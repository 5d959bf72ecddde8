"""Samples of runs for a page: the output of `seqmodel sample`, and pictures of it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import Dataset
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Progress, SampleRequest, Sampling
from seqmodel.media.registry import medium_of
from seqmodel.report.origin import brief
from seqmodel.report.page.parts import Sample
from seqmodel.report.subjects import Subject
from seqmodel.runs.folder import Run
from seqmodel.sampling.filling import Filler
from seqmodel.sampling.sampler import Sampler

NONE: Mapping[str, Any] = MappingProxyType({})


def draw(
    subjects: Sequence[Subject],
    *,
    number: int,
    seed: int,
    progress: Progress,
    options: Mapping[str, Any] = NONE,
) -> dict[str, list[Sample]]:
    """Draw `number` samples per subject, by its name; none if browsers cannot play its medium.

    `options` are values of the medium's `page_options`. UsageError if they are not possible, or the
    sound cannot be written.
    """
    if not number:
        return {}
    kinds = [(subject, medium_of(subject.run.frame).page_format) for subject in subjects]
    asked = [(subject, _sampling(subject.run, kind, options)) for subject, kind in kinds if kind]
    found: dict[str, list[Sample]] = {}
    for done, (subject, sampling) in enumerate(asked):
        found[subject.name] = []
        for k, sample in enumerate(_samples(subject, sampling, options, number, seed), 1):
            found[subject.name].append(sample)
            progress(number * done + k, number * len(asked))
    return found


def command(
    runs: Sequence[Run], *, number: int, seed: int, options: Mapping[str, Any] = NONE
) -> str:
    """The command that writes the samples of runs of one medium to files."""
    medium = medium_of(runs[0].frame)
    name = shlex.quote(brief(runs[0].folder)) if len(runs) == 1 else "RUN"
    several = f" -n {number}" if number > 1 else ""
    chosen = list[str]()
    for option in medium.page_options:
        value = options.get(option.name)
        if value is True:
            chosen.append(option.flag)
        elif value not in (None, False):
            shown = brief(value) if option.kind is Path else str(value)
            chosen.append(f"{option.flag} {shlex.quote(shown)}")
    what = " ".join(chosen) or f"--seconds {medium.page_seconds:g}"
    return f"seqmodel sample OUT.{medium.page_format} --run {name} {what} --seed {seed}{several}"


def real_piece(
    run: Run, dataset: Dataset | None, options: Mapping[str, Any] = NONE
) -> list[Sample]:
    """A piece of the run's dataset as `draw` shows samples with `options`, to compare them with.

    It is the first of valid, or of the first split there is, with those that follow if they are
    joined; none if the dataset is gone.
    """
    medium = medium_of(run.frame)
    if dataset is None or not medium.page_format:
        return []
    name = "valid" if "valid" in dataset.splits else dataset.splits[0]
    manner = _sampling(run, medium.page_format, options).manner
    split, sampling = dataset[name], _sampling(run, medium.page_format, manner)
    pieces = [split[0][: sampling.length]]
    left = sampling.length - len(pieces[0])
    while medium.page_joins and left and len(pieces) < len(split):
        pieces.append(split[len(pieces)][:left])
        left -= len(pieces[-1])
    files = [Path(source).name for source in split.sources[: len(pieces)]]
    which = files[0] if len({*files}) == 1 else f"{files[0]} to {files[-1]}"
    what = "A real piece" if len(pieces) == 1 else "Real pieces"
    return [_sample(run, manner, sampling, pieces, f"{what}, {which} of {name}")]


def _sampling(run: Run, kind: str, options: Mapping[str, Any] = NONE) -> Sampling:
    medium = medium_of(run.frame)
    request = SampleRequest(
        kind=kind,
        seconds=medium.page_seconds,
        longest_piece=run.longest_piece if run.config.end else None,
        options=options,
    )
    try:
        return medium.sampling(run.frame, request)
    except UsageError as error:
        hint = "" if any(options.values()) else "; or add --samples 0"
        raise UsageError(f"cannot sample {run.folder}: {error}{hint}") from error


def _samples(
    subject: Subject, sampling: Sampling, options: Mapping[str, Any], number: int, seed: int
) -> Iterator[Sample]:
    model, around = subject.run.model, sampling.filling
    sampler = Sampler(model)
    filler = Filler(model, particles=around.particles) if around else None
    for k in range(number):
        if around is None or filler is None:
            chunks = [*sampler.piece(sampling.length, seed=seed, number=k)]
        else:
            filled = filler.fill(
                around.piece, around.free, seed=seed, number=k, sweeps=around.sweeps
            )
            chunks = [filled.frames]
        name = f"{subject.name}, sample {k + 1}" if number > 1 else subject.name
        yield _sample(subject.run, options, sampling, chunks, name, series=subject.name)


def _sample(
    run: Run,
    options: Mapping[str, Any],
    sampling: Sampling,
    chunks: Sequence[NDArray[Any]],
    name: str,
    series: str = "",
) -> Sample:
    """The frames as a sample; `name` also names its file to save."""
    medium, sound = medium_of(run.frame), BytesIO()
    written = sampling.write(sound, chunks, lambda done, total: None)
    hint = f", {written.hint}" if written.hint else ""
    download = None
    if medium.page_download:
        file = BytesIO()
        saved = _sampling(run, medium.page_download, options)
        saved.write(file, chunks, lambda done, total: None)
        download = (f"{name}.{medium.page_download}", file.getvalue())
    return Sample(
        caption=f"{name}: {written.size}{hint}",
        picture=sampling.picture(np.concatenate(chunks)),
        sound=sound.getvalue(),
        kind=medium.page_format,
        series=series,
        download=download,
    )
