"""Mistakes in `train`."""

from mistakes.said import BOTH, DAMAGED, EXISTS, HELP, NO_DATASET, NO_RUN, NOTHING_ELSE, UNITS

TRAIN = {
    "train {data} --nade-hidden 9": (2, "--nade-hidden is for --output nade, not for note-unit"),
    "train {data} --output nade --components 9": (
        2,
        "--components is for --output gaussian or logistic, not for nade",
    ),
    "train {bad}/nope": (1, f"{{bad}}/nope {NO_DATASET} --out DATA`"),
    "train {bad}/file": (1, f"{{bad}}/file {NO_DATASET} --out DATA`"),
    "train {music}": (1, f"{{music}} {NO_DATASET} --out DATA`"),
    "train {bad}/no-manifest": (1, f"{{bad}}/no-manifest {NO_DATASET} --out DATA`"),
    "train {bad}/text-manifest": (
        1,
        "{bad}/text-manifest/manifest.json is damaged: Expecting property name enclosed in double "
        "quotes: line 1 column 2 (char 1); run `seqmodel prepare` again",
    ),
    "train {bad}/future": (
        1,
        "{bad}/future/manifest.json is seqmodel-dataset version 9; this seqmodel reads "
        "seqmodel-dataset version 1: run `seqmodel prepare` again",
    ),
    "train {bad}/cut-data": (
        1,
        "{bad}/cut-data is damaged: train cannot be read; run `seqmodel prepare` again",
    ),
    "train {bad}/no-index": (
        1,
        "cannot read {bad}/no-index/valid.jsonl: no such file or directory",
    ),
    "train {bad}/one-data": (
        1,
        "{bad}/one-data has no pieces in valid, which training needs: prepare it again from more "
        "files, or from folders named train and valid",
    ),
    "prepare {bad}/song.m4a -o d": (
        1,
        "{bad}/song.m4a: cannot be read; convert it first: ffmpeg -i {bad}/song.m4a "
        "{bad}/song.flac",
    ),
    "train {data} --hidden 3 --params 9": (2, BOTH),
    "train {data} --hidden 0": (2, "--hidden must be 1 or more, not 0"),
    "train {data} --hidden 1000001": (2, "--hidden must be 1000000 or less, not 1000001"),
    "train {data} --hidden 1000000": (
        1,
        "out of memory; try a smaller --hidden, --batch-size or --truncate",
    ),
    "train {data} --seed 9223372036854775808": (
        2,
        "--seed must be 9223372036854775807 or less, not 9223372036854775808",
    ),
    "train {data} --hidden many": (
        2,
        f"--hidden must be a whole number {HELP.format('train')}",
    ),
    "train {data} --params 5": (
        2,
        "--params 5 is too small for lstm: one unit over 82 inputs already has 550",
    ),
    "train {data} --unit gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "train {data} --activation step": (
        2,
        "--activation must be one of tanh, sigmoid, relu, not 'step'",
    ),
    "train {data} --gate-activation step": (
        2,
        "--gate-activation must be one of sigmoid, hard-sigmoid, not 'step'",
    ),
    "train {data} --backend tpu": (
        2,
        "--backend must be one of auto, cpu, torch-nn, reference, not 'tpu'",
    ),
    "train {data} --preset best": (2, "--preset must be one of default, paper, not 'best'"),
    "train {data} --optimizer sgd": (2, "--optimizer must be one of adam, rmsprop, not 'sgd'"),
    "train {data} --lr fast": (2, "--learning-rate must be a number or search, not 'fast'"),
    "train {data} --lr 0.1 --trials 3": (
        2,
        "--trials goes with --lr search, not with --lr 0.1",
    ),
    "train {data} --lr nan": (2, "--learning-rate must be 0 or more, not nan"),
    "train {data} --dropout 1": (2, "--dropout must be below 1, not 1.0"),
    "train {data} --nope": (
        2,
        "No such option: --nope (Possible options: --no-echo, --no-end, --no-metre) "
        f"{HELP.format('train')}",
    ),
    "train {data} --print-config --unit gnu": (2, f"there is no unit 'gnu'; choose one of {UNITS}"),
    "train {data} --config {bad}/nope": (1, "cannot read {bad}/nope: no such file or directory"),
    "train {data} --config {bad}/empty": (1, "cannot read {bad}/empty: is a directory"),
    "train {data} --config {bad}/not.yaml": (
        1,
        "{bad}/not.yaml: not a YAML file: expected the node content, but found '<stream end>'"
        " in line 1",
    ),
    "train {data} --config {bad}/list.yaml": (
        1,
        "{bad}/list.yaml: must hold keys and values, such as `unit: lstm`",
    ),
    "train {data} --config {bad}/typo.yaml": (
        1,
        "{bad}/typo.yaml: there is no setting 'hiden'; did you mean hidden?",
    ),
    "train {data} --config {bad}/type.yaml": (
        1,
        "{bad}/type.yaml: hidden must be a whole number or nothing, not 'many'",
    ),
    "train {data} --config {bad}/unit.yaml": (
        1,
        f"{{bad}}/unit.yaml: unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --config {bad}/note-unit.yaml": (
        1,
        f"{{bad}}/note-unit.yaml: note_unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --config {bad}/logistic.yaml": (
        1,
        "{bad}/logistic.yaml: output: --output logistic does not fit music, which has note-unit, "
        "bernoulli and nade",
    ),
    "train --config {bad}/lost.yaml": (
        1,
        f"{{bad}}/lost.yaml: data: /nowhere {NO_DATASET} --out DATA`",
    ),
    "train {data} --config {bad}/good.yaml --unit gnu": (
        2,
        f"there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train {data} --run {run}": (1, f"{{run}} {EXISTS}"),
    "train {data} --run {data}": (1, f"{{data}} is not a run folder, {NOTHING_ELSE}"),
    "train {data} --run {bad}/other --force": (
        1,
        f"{{bad}}/other is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/file --force": (
        1,
        f"{{bad}}/file is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/others-config --force": (
        1,
        f"{{bad}}/others-config is not a run folder, {NOTHING_ELSE}",
    ),
    "train {data} --run {bad}/thesis-run --force": (
        1,
        "{bad}/thesis-run holds notes/thesis.tex, which is not part of a run folder; move it "
        "elsewhere or name another place",
    ),
    "train {data} --device tpu": (2, "there is no device 'tpu'; choose one of auto, cpu, cuda"),
    "train {data} --lr inf": (2, "--learning-rate must be finite, not inf"),
    "train {data} --run {bad}/file/run": (
        1,
        "cannot write {bad}/file/run: {bad}/file is a file, not a folder",
    ),
    "train {data} --init-from {bad}/empty": (
        1,
        "{bad}/empty has no checkpoint (best.safetensors); train one with `seqmodel train`",
    ),
    "train {data} --model frame-wise --no-end --init-from {run} --hidden 5": (
        1,
        "--init-from {run}: the checkpoint's weights do not fit the model: output.linear.weight is "
        "(88, 4) there and (88, 5) here; use the unit, size and options that it was trained with",
    ),
    "train --resume": (1, NO_RUN),
    "train --resume --run {bad}/nope": (
        1,
        "{bad}/nope is not a run folder (no config.yaml); there is nothing to resume",
    ),
    "train --resume --run {bad}/no-checkpoint": (
        1,
        "{bad}/no-checkpoint has no checkpoint to resume from (last.safetensors); train it again "
        "with --run {bad}/no-checkpoint --force",
    ),
    "train --resume --run {bad}/cut-last": (1, f"{{bad}}/cut-last/last.safetensors {DAMAGED}"),
    "train --resume --run {run} --unit gru": (
        2,
        "--unit cannot change on --resume; start a new run with --init-from",
    ),
    "train {music} --resume --run {run}": (1, f"{{music}} {NO_DATASET} --out DATA`"),
    "train --resume --run {bad}/edited": (
        1,
        "{bad}/edited was trained with hidden 4, not 5: restore it in {bad}/edited/config.yaml, "
        "or start a new run with --init-from {bad}/edited",
    ),
    "train --resume --run {bad}/gnu": (
        1,
        f"{{bad}}/gnu/config.yaml: unit: there is no unit 'gnu'; choose one of {UNITS}",
    ),
    "train --resume --run {run} --lr search": (
        2,
        "--trials cannot change on --resume; start a new run with --init-from",
    ),
    "train --resume --run {run} --epochs 1": (
        2,
        "--epochs 1 is less than the 2 that {run} has",
    ),
    "train --resume --run {run} --force": (
        2,
        "--resume excludes --init-from, --config and --force",
    ),
}
