"""The page of `seqmodel report`: how runs learned, how well they predict, their samples.

Samples are the output of `seqmodel sample`, and pictures of it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.config import to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import UsageError
from seqmodel.evaluation.likelihood import FIGURES
from seqmodel.media.registry import medium_of
from seqmodel.media.samples import Progress, Sampling
from seqmodel.media.words import duration_text, epochs_text, listed, plural, spaced
from seqmodel.report.origin import provenance, short_path
from seqmodel.report.page import parts
from seqmodel.report.subjects import Subject, model_in_words, unique_names
from seqmodel.runs.files import epochs_of
from seqmodel.runs.folder import DRAWS_INDEX, Run
from seqmodel.sampling.filling import Filler
from seqmodel.sampling.sampler import Freeze, Sampler

UNKNOWN = "\N{EN DASH}"
TITLE = 60
"""In characters; if the names of several runs are longer, the title gives their number."""


def run_page(
    runs: Sequence[Subject],
    samples: Mapping[str, Sequence[parts.Sample]],
    *,
    seed: int,
    command: str,
    options: Mapping[str, Any] = {},
) -> parts.Page:
    """A section for each dataset, wherever it is stored, and one on the origin of the figures.

    Nats of probabilities and of densities are not comparable, so runs with either have separate
    sections, even on the same dataset. `samples` are by run name, drawn with `seed` and `options`;
    `command` is as typed.
    """
    groups = _groups(runs)
    names = [scored.name for scored in runs]
    what = listed(names)
    if len(runs) > 1 and len(what) > TITLE:
        what = plural(len(runs), "run")
    sections = [_section(name, group, samples, seed, options) for name, group in groups.items()]
    return parts.Page(
        title=f"{what} on {listed([*groups])}",
        lead=tuple(_lead(name, group) for name, group in groups.items()),
        sections=(*sections, provenance(command, [_settings(scored) for scored in runs])),
    )


def _groups(runs: Sequence[Subject]) -> dict[str, list[Subject]]:
    folders = {scored.content: scored.run.data for scored in reversed(runs)}
    names = dict(zip(folders, unique_names([*folders.values()]), strict=True))
    groups: dict[str, list[Subject]] = {}
    for scored in runs:
        densities = "" if scored.run.model.output.discrete else " (densities)"
        groups.setdefault(names[scored.content] + densities, []).append(scored)
    return groups


def _lead(name: str, group: Sequence[Subject]) -> str:
    known = [(nats, scored) for scored in group if (nats := scored.nats("valid")) is not None]
    if not known:
        return f"The score on valid of {name} is unknown."
    nats, best = min(known, key=lambda entry: entry[0])
    first = "scores" if len(group) == 1 else "is the best of these runs: it scores"
    text = f"{best.name} {first} {nats:.4f} nats per frame on valid of {name}"
    return text + beside_trivial(nats, best.splits.get("valid", {}).get("baselines", {}), ".4f")


def beside_trivial(nats: float, baselines: Mapping[str, float], form: str) -> str:
    """The end of a sentence on a model's nats per frame: what the best trivial model scores."""
    if not baselines:
        return "."
    name, figure = min(baselines.items(), key=lambda entry: entry[1])
    verdict = "scores" if nats < figure else "is better, at"
    return f"; the best trivial model ({spaced(name)}) {verdict} {figure:{form}}."


def trivial_rows(
    baselines: Mapping[str, Mapping[str, float]], columns: Sequence[str], form: str
) -> list[parts.Row]:
    """A row for each trivial model, given its nats per frame by split; other columns are empty."""
    names = dict.fromkeys(name for models in baselines.values() for name in models)
    rows = []
    for name in names:
        figures = (baselines.get(column, {}).get(name) for column in columns)
        cells = ("" if nats is None else f"{nats:{form}}" for nats in figures)
        rows.append(parts.Row((f"{spaced(name)} (trivial)", *cells), muted=True))
    return rows


def _section(
    name: str,
    group: Sequence[Subject],
    samples: Mapping[str, Sequence[parts.Sample]],
    seed: int,
    options: Mapping[str, Any],
) -> parts.Section:
    dataset = next((scored.dataset for scored in group if scored.dataset is not None), None)
    shown: list[parts.Part] = [_figures(group)]
    if dataset is not None:
        shown.append(_more_figures(group))
    shown.append(parts.Curves(tuple(scored.curve for scored in group)))
    if drawn := [scored for scored in group if samples.get(scored.name)]:
        pieces = [sample for subject in drawn for sample in samples[subject.name]]
        number = len(pieces) // len(drawn)
        command = _sample_command([subject.run for subject in drawn], number, seed, options)
        pieces += real_piece(drawn[0].run, dataset, options)
        remarks = [f"Drawn with seed {seed}; to reproduce: {command}"]
        if any(piece.picture.given for piece in pieces):
            remarks.append("What was given is grey.")
        shown.append(parts.Samples(tuple(pieces), tuple(remarks)))
    notes = []
    if dataset is not None:
        splits = [
            f"{split} {plural(counts['pieces'], 'piece')}, {plural(counts['frames'], 'frame')}"
            for split, counts in dataset.manifest["splits"].items()
            if counts["pieces"]
        ]
        notes.append(f"{dataset.frame}: {'; '.join(splits)}.")
    folders = unique_names([*dict.fromkeys(scored.run.data for scored in group)])
    if len(folders) > 1:
        notes.append(f"{listed(folders)} hold the same pieces.")
    notes += [f"{scored.remark}." for scored in group if scored.remark]
    return parts.Section(name, tuple(shown), tuple(notes))


def _figures(group: Sequence[Subject]) -> parts.Table:
    splits = [*dict.fromkeys(split for scored in group for split in scored.splits)] or ["valid"]
    names = ("run", *splits, "parameters (with output)", "best epoch", "training time")
    rows = []
    for scored in group:
        curve, counts = scored.curve, scored.run.model.parameter_counts()
        facts = (f"{counts.units:,} ({counts.with_output:,})", UNKNOWN, UNKNOWN)
        if curve.best_line is not None:
            time = duration_text(curve.seconds()[-1])  # of updates, without scoring valid
            ends = curve.metrics[curve.best_line]["epoch"], epochs_of(curve.metrics)
            epoch, total = map(epochs_text, ends)
            facts = (facts[0], f"{epoch} of {total}{' more' * bool(scored.run.began_from)}", time)
        cells = (scored.name, *(_nats(scored.nats(split)) for split in splits), *facts)
        best = frozenset(k for k, one in enumerate(splits, 1) if _is_best(scored, group, one))
        rows.append(parts.Row(cells, best, model_in_words(scored.run), series=scored.name))
    # All runs scored on a dataset have the same ones.
    trivial = {split: of["baselines"] for one in group for split, of in one.splits.items()}
    rows += trivial_rows(trivial, names[1:], ".4f")
    return parts.Table(names, tuple(rows), "Nats per frame", tuple(_verdicts(group)))


def _is_best(scored: Subject, group: Sequence[Subject], split: str) -> bool:
    """Whether no other run in the group predicts the split better; False without others."""
    all_nats = [nats for one in group if (nats := one.nats(split)) is not None]
    return len(all_nats) > 1 and scored.nats(split) == min(all_nats)


def _verdicts(group: Sequence[Subject]) -> list[str]:
    remarks = ["Exact, over all frames of a split; lower is better."]
    if not group[0].run.model.output.discrete:
        remarks.append("Densities of standardised samples: not comparable with other figures.")
    for scored in group:
        name = scored.name
        where: dict[str, list[str]] = {}
        for split, values in scored.splits.items():
            for trivial, nats in values["baselines"].items():
                if nats <= values["nats_per_frame"]:
                    where.setdefault(trivial, []).append(split)
        for splits in dict.fromkeys(map(tuple, where.values())):
            better = listed([spaced(one) for one, on in where.items() if tuple(on) == splits])
            remarks.append(f"{name} is no better than {better} on {listed(splits)}.")
        if scored.dataset is None and scored.nats("valid") is not None:
            remarks.append(f"The valid figure of {name} was recorded in training.")
        if scored.run.began_from is not None:
            before = f"the weights of {scored.run.began_from}"
            remarks.append(f"{name} started from {before}: its epochs and time are those since.")
        if (scored.run.folder / DRAWS_INDEX).is_file():
            remarks.append(f"{name} is the best trial of a search; its time is that of this trial.")
    return remarks


def _more_figures(group: Sequence[Subject]) -> parts.Table:
    lines = [(s.name, split, values) for s in group for split, values in s.splits.items()]
    figures = dict.fromkeys(
        name
        for *_, values in lines
        for name, value in values.items()
        if isinstance(value, float) and name != "epoch"
    )
    names = (FIGURES.get(figure, spaced(figure)).strip() for figure in figures)
    heads = ("run", "split", "pieces", "frames", *names)
    rows = []
    for name, split, values in lines:
        counts = (f"{values['pieces']:,}", f"{values['frames']:,}")
        cells = (name, split, *counts, *(_nats(values.get(figure)) for figure in figures))
        rows.append(parts.Row(cells, series=name))
    return parts.Table(heads, tuple(rows), "All figures", collapsed=True, text=("split",))


def _settings(subject: Subject) -> tuple[str, str]:
    units, whole = subject.run.model.parameter_counts()
    head = f"# {short_path(subject.run.folder)}: {units:,} parameters, {whole:,} with the output\n"
    settings = to_yaml(replace(subject.run.config, data=short_path(str(subject.run.config.data))))
    return f"Settings of {subject.name}", head + settings.rstrip()


def _nats(figure: float | None) -> str:
    return UNKNOWN if figure is None else f"{figure:.4f}"


def draw(
    subjects: Sequence[Subject],
    *,
    number: int,
    seed: int,
    progress: Progress,
    options: Mapping[str, Any] = {},
) -> dict[str, list[parts.Sample]]:
    """Draw `number` samples per subject, by its name; none if browsers cannot play its medium.

    `options` are values of `page_options`; UsageError if impossible, or if sound cannot be written.
    """
    if not number:
        return {}
    kinds = [(subject, medium_of(subject.run.frame).page_format) for subject in subjects]
    planned = [(subject, _sampling(subject.run, kind, options)) for subject, kind in kinds if kind]
    found: dict[str, list[parts.Sample]] = {}
    for done, (subject, sampling) in enumerate(planned):
        name, run, filling, metres = subject.name, subject.run, sampling.filling, sampling.metres
        freeze, sampler = Freeze.of(run), Sampler(run.model, metres=metres)
        filler = Filler(run.model, particles=filling.particles, metres=metres) if filling else None
        samples = found[name] = []
        for k in range(number):
            if filling is None or filler is None:
                chunks = [*sampler.piece(sampling.length, seed=seed, number=k, freeze=freeze)]
            else:
                piece, free = filling.piece, filling.free
                filled = filler.fill(piece, free, seed=seed, number=k, sweeps=filling.sweeps)
                chunks = [filled.frames]
            which = f"{name}, sample {k + 1}" if number > 1 else name
            samples.append(_sample(run, options, sampling, chunks, which, series=name))
            progress(number * done + k + 1, number * len(planned))
    return found


def _sample_command(runs: Sequence[Run], number: int, seed: int, options: Mapping[str, Any]) -> str:
    """The command that writes the samples of runs of one medium to files."""
    medium = medium_of(runs[0].frame)
    name = shlex.quote(short_path(runs[0].folder)) if len(runs) == 1 else "RUN"
    several = f" -n {number}" if number > 1 else ""
    chosen = list[str]()
    for option in medium.page_options:
        value = options.get(option.name)
        if value is True:
            chosen.append(option.flag)
        elif value not in (None, False):
            shown = short_path(value) if option.kind is Path else str(value)
            chosen.append(f"{option.flag} {shlex.quote(shown)}")
    what = " ".join(chosen) or f"--seconds {medium.page_seconds:g}"
    return f"seqmodel sample OUT.{medium.page_format} --run {name} {what} --seed {seed}{several}"


def real_piece(
    run: Run, dataset: Dataset | None, options: Mapping[str, Any] = {}
) -> list[parts.Sample]:
    """The first piece of valid, or of the first split there is, shown like samples of `draw`.

    Includes the following pieces if they are joined; empty if the dataset is gone.
    """
    medium = medium_of(run.frame)
    if dataset is None or not medium.page_format:
        return []
    name = "valid" if "valid" in dataset.splits else dataset.splits[0]
    playback = _sampling(run, medium.page_format, options).playback_options
    split, sampling = dataset[name], _sampling(run, medium.page_format, playback)
    pieces = [split.frame.decode_marked(split.read_rows(0))[: sampling.length]]
    remaining = sampling.length - len(pieces[0])
    while medium.page_joins and remaining and len(pieces) < len(split):
        pieces.append(split.frame.decode_marked(split.read_rows(len(pieces)))[:remaining])
        remaining -= len(pieces[-1])
    sources = split.sources[: len(pieces)]
    files = [Path(re.sub(r"(#\w+/[\d-]+)+$", "", source)).name for source in sources]
    which = files[0] if len({*files}) == 1 else f"{files[0]} to {files[-1]}"
    what = "A real piece" if len(pieces) == 1 else "Real pieces"
    return [_sample(run, playback, sampling, pieces, f"{what}, {which} of {name}")]


def _sampling(run: Run, kind: str, options: Mapping[str, Any] = {}) -> Sampling:
    try:
        return run.sampling(kind, options=options)
    except UsageError as error:
        hint = "" if any(options.values()) else "; or add --samples 0"
        raise UsageError(f"cannot sample {run.folder}: {error}{hint}") from error


def _sample(
    run: Run,
    options: Mapping[str, Any],
    sampling: Sampling,
    chunks: Sequence[NDArray[Any]],
    name: str,
    series: str = "",
) -> parts.Sample:
    medium, sound = medium_of(run.frame), BytesIO()
    written = sampling.write(sound, chunks)
    hint = f"; {written.hint}" if written.hint else ""
    download = None
    if medium.page_download:
        file = BytesIO()
        saved = _sampling(run, medium.page_download, options)
        saved.write(file, chunks)
        download = (f"{name}.{medium.page_download}", file.getvalue())
    return parts.Sample(
        caption=f"{name}: {written.size}{hint}",
        picture=sampling.picture(np.concatenate(chunks)),
        sound=sound.getvalue(),
        kind=medium.page_format,
        series=series,
        download=download,
    )
