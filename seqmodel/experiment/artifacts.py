"""Checkpoints of winners that hosts give each other, by Optuna's artifacts."""

import shutil
import warnings
from pathlib import Path

from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.exceptions import ExperimentalWarning
from optuna.trial import Trial

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.studies import Studies
from seqmodel.files import disk_error, new_file
from seqmodel.runs.folder import BEST


class Artifacts:
    """A folder that all hosts see, or none: what is given is then lost."""

    def __init__(self, folder: Path | None) -> None:
        """Make the folder.

        Raises:
            SeqmodelError: if that is not possible.
        """
        self._folder = folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(folder, "use", error) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            self._store = FileSystemArtifactStore(folder)

    def give(self, trial: Trial, run: Path) -> None:
        """Leave the best checkpoint of a winner's run for the other hosts.

        Raises:
            SeqmodelError: if the folder is full, or gone.
        """
        if self._folder is None:
            return
        try:
            upload_artifact(
                artifact_store=self._store, file_path=str(run / BEST), study_or_trial=trial
            )
        except OSError as error:
            raise disk_error(self._folder, "write to", error) from error

    def collect(self, studies: Studies, folder: Path) -> None:
        """Fetch the checkpoints that the experiment's `folder` lacks.

        Raises:
            SeqmodelError: if one cannot be read, or the disk is full.
        """
        for cell in studies.plan.cells() if self._folder is not None else ():
            for index, trial in studies.seeds(cell).indexed().items():
                best = folder / "runs" / cell.name / studies.run_of_seed(cell, index) / BEST
                given = get_all_artifact_meta(trial, storage=studies.storage)
                if given and not best.exists():
                    self._fetch(given[-1].artifact_id, best)

    def _fetch(self, artifact: str, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._store.open_reader(artifact) as source, new_file(target) as file:
                shutil.copyfileobj(source, file)
        except (OSError, ArtifactNotFound) as error:
            raise SeqmodelError(f"cannot fetch {target} from {self._folder}: {error}") from error
