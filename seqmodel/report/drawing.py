"""Samples of runs for a page: the output of `seqmodel sample`, and pictures of it."""

import shlex
from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np

from seqmodel.errors import UsageError
from seqmodel.media.definitions import Progress, SampleRequest, Sampling
from seqmodel.media.registry import medium_of
from seqmodel.report.page import Sample
from seqmodel.report.subjects import Subject
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Sampler


def draw(
    subjects: Sequence[Subject], *, number: int, seed: int, progress: Progress
) -> dict[str, list[Sample]]:
    """Draw `number` samples per subject, by its name; none if browsers cannot play its medium.

    Raises:
        UsageError: if the sound cannot be written.
    """
    if not number:
        return {}
    asked = [(s, _sampling(s.run)) for s in subjects if medium_of(s.run.frame).page_format]
    found: dict[str, list[Sample]] = {}
    for done, (subject, sampling) in enumerate(asked):
        found[subject.name] = []
        for k, sample in enumerate(_samples(subject, sampling, number, seed), 1):
            found[subject.name].append(sample)
            progress(number * done + k, number * len(asked))
    return found


def command(runs: Sequence[Run], *, number: int, seed: int) -> str:
    """The command that writes the samples of runs of one medium to files."""
    medium = medium_of(runs[0].frame)
    name = shlex.quote(str(runs[0].folder)) if len(runs) == 1 else "RUN"
    several = f" -n {number}" if number > 1 else ""
    return (
        f"seqmodel sample OUT.{medium.page_format} --run {name} "
        f"--seconds {medium.page_seconds:g} --seed {seed}{several}"
    )


def _sampling(run: Run) -> Sampling:
    medium = medium_of(run.frame)
    request = SampleRequest(
        kind=medium.page_format,
        length=None,
        seconds=medium.page_seconds,
        prime=None,
        include_prime=False,
        options={},
        title="",
        longest_piece=run.longest_piece if run.config.end else None,
    )
    try:
        return medium.sampling(run.frame, request)
    except UsageError as error:
        raise UsageError(f"cannot sample {run.folder}: {error}; or add --samples 0") from error


def _samples(subject: Subject, sampling: Sampling, number: int, seed: int) -> Iterator[Sample]:
    run, sampler = subject.run, Sampler(subject.run.model)
    medium = medium_of(run.frame)
    for k in range(number):
        chunks = [*sampler.piece(sampling.length, seed=seed, number=k)]
        sound = BytesIO()
        written = sampling.write(sound, chunks, lambda done, total: None)
        name = f"{subject.name}, sample {k + 1}" if number > 1 else subject.name
        hint = f", {written.hint}" if written.hint else ""
        yield Sample(
            caption=f"{name}: {written.size}{hint}",
            picture=medium.picture(np.concatenate(chunks), run.frame),
            sound=sound.getvalue(),
            kind=medium.page_format,
            series=subject.name,
        )
