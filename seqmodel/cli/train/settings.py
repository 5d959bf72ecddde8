"""The settings of a run, from the options of `seqmodel train`, a file, or the run to resume."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqmodel.cli.common import blaming
from seqmodel.config import SEARCHES, TRIALS, Config, read_config_file, resolve, search_of
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.registry import medium_of


def of_new_run(given: dict[str, Any], config: Path | None, trials: int | None) -> Config:
    """The settings from the options given, which override those of the file `config`.

    SeqmodelError if the file cannot be read or has an invalid setting; UsageError if an option has
    an invalid value, or would have no effect.
    """
    file = read_config_file(config) if config else {}
    return blaming(
        Path(config or ""), file, lambda file: _resolved(_with_rates(given, file, trials), file)
    )


def of_stopped_run(folder: Path, given: dict[str, Any], trials: int | None) -> Config:
    """The settings of the run to resume, updated with those given.

    SeqmodelError if there is nothing to resume; UsageError for a change of what the run must keep.
    """
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import outline
    from seqmodel.runs.folder import CONFIG, LAST, read_metrics
    from seqmodel.training.state import RESUMABLE

    if folder.is_file():
        raise SeqmodelError(
            f"{folder} is a file, without the state of training: start from its weights with "
            f"--init-from {folder}"
        )
    if not (folder / CONFIG).is_file():
        raise SeqmodelError(
            f"{folder} is not a run folder (no {CONFIG}); there is nothing to resume"
        )
    stored = {**Config.neutral(), **read_config_file(folder / CONFIG)}
    given = _with_rates(given, stored, trials)
    changed = [name for name in given if given[name] != stored.get(name)]
    fixed = sorted(set(changed) - set(RESUMABLE))
    if fixed:
        name = "trials" if fixed[0] in SEARCHES.values() else fixed[0]
        option = "--" + name.replace("_", "-")
        raise UsageError(f"{option} cannot change on --resume; start a new run with --init-from")
    if "data" in given:
        given["data"] = str(Path(given["data"]).resolve())  # as stored

    def continued(stored: Mapping[str, Any]) -> Config:
        settings = resolve(given, stored)
        outline(settings, open_dataset(str(settings.data)).frame)  # UsageError as above
        return settings

    settings = blaming(folder / CONFIG, stored, continued)
    ended = len(read_metrics(folder))
    if settings.epochs < ended:
        raise UsageError(f"--epochs {settings.epochs} is less than the {ended} that {folder} has")
    if not (folder / LAST).is_file() and not settings.trials:
        raise SeqmodelError(
            f"{folder} has no checkpoint to resume from ({LAST}); "
            f"train it again with --run {folder} --force"
        )
    return settings


def _with_rates(
    given: dict[str, Any], file: Mapping[str, Any], trials: int | None
) -> dict[str, Any]:
    """The options with `learning_rate` as a number, or replaced by the setting of a search."""
    others = dict(given)
    rate = others.pop("learning_rate", None)
    if rate is not None and rate != "search":
        if trials is not None:
            raise UsageError(f"--trials goes with --lr search, not with --lr {rate}")
        try:
            return {**others, "learning_rate": float(rate)}
        except ValueError:
            raise UsageError(f"--learning-rate must be a number or search, not {rate!r}") from None
    if rate is None and trials is None:
        return others
    search = search_of({**file, **given}.get("preset", Config.preset))
    return {**others, SEARCHES[search]: trials or TRIALS}


def _resolved(given: Mapping[str, Any], file: Mapping[str, Any]) -> Config:
    """The settings for the medium of their data, all sizes solved; UsageError for no such unit."""
    from seqmodel.data.bundled import FRAMES
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import outline, with_sizes
    from seqmodel.outputs.registry import only_model, output_name

    data = given.get("data", file.get("data"))
    frame = open_dataset(data).frame if data else FRAMES
    both = {**file, **given}
    model = only_model(both.get("output", "auto"))
    if model is not None and "model" not in both:
        given = {**given, "model": model}
    settings = with_sizes(resolve(given, file, medium_of(frame).presets), frame)
    _refuse_sizes_of_other_outputs(given, output_name(settings, frame))
    outline(settings, frame)  # UsageError if there is no such model
    return settings


def _refuse_sizes_of_other_outputs(given: Mapping[str, Any], chosen: str) -> None:
    """UsageError for a size option that the chosen output does not use."""
    from seqmodel.outputs.registry import OUTPUTS

    sizes = {name: entry.size[0] for name, entry in OUTPUTS.items() if entry.size is not None}
    for setting in sizes.values():
        names = [name for name, size in sizes.items() if size == setting]
        if setting in given and chosen not in names:
            option = "--" + setting.replace("_", "-")
            raise UsageError(f"{option} is for --output {' or '.join(names)}, not for {chosen}")
