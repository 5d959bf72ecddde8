"""Help texts, shell completion, settings and their precedence."""

import inspect
import re
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import typer
import yaml

from seqmodel.cli import bench, compare, prepare, sample, share, train, units
from seqmodel.cli import eval as eval_command
from seqmodel.cli import inspect as inspect_command
from seqmodel.config import Config, resolve
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.music.medium import MUSIC

FUNCTIONS = {
    "prepare": prepare.prepare,
    "train": train.train,
    "eval": eval_command.evaluate,
    "sample": sample.sample,
    "report": share.report,
    "export": share.export,
    "compare": compare.compare,
    "inspect": inspect_command.inspect,
    "units": units.units,
    "bench": bench.bench,
}
HEAVY = ("torch", "numpy", "matplotlib", "safetensors", "mido", "soundfile", "soxr")


def entries(text):
    """The options and arguments of a help text, each with its help on one line."""
    found: dict[str, str] = {}
    _, *lines = re.split(r"^[A-Z][a-z ]+:$", text, maxsplit=1, flags=re.MULTILINE)
    for line in "".join(lines).splitlines():
        if re.match(r"  [-A-Z]", line):
            entry, _, rest = line.strip().partition("  ")
            found[entry] = rest.strip()
        elif line.startswith("    "):
            found[entry] = f"{found[entry]} {line.strip()}".strip()
    return found


@pytest.mark.parametrize("command", FUNCTIONS)
def test_every_option_has_a_help_text(command, call):
    """Guards against an option that help leaves out or leaves unexplained."""
    shown = call(command, "--help")
    assert (shown.status, shown.err) == (0, "")
    assert call(command, "-h").out == shown.out
    found = entries(shown.out)
    assert all(found.values()), found
    names = {name for entry in found for name in re.findall(r"--[a-z-]+|^[A-Z]+", entry)}
    for name, parameter in inspect.signature(FUNCTIONS[command]).parameters.items():
        if parameter.annotation is typer.Context:
            continue
        (option,) = getattr(parameter.annotation, "__metadata__", [parameter.default])
        said = [str(d) for d in (option.default, *(option.param_decls or ()))]
        said = [d for d in said if d.startswith("--")]
        if type(option).__name__ == "ArgumentInfo":
            assert option.metavar in names
        else:
            for spelling in said or [f"--{name.replace('_', '-')}"]:
                assert set(spelling.split("/")) <= names


def test_the_list_of_commands_is_not_cut_short(call):
    """Guards against first sentences that end in "..." in `seqmodel --help`."""
    shown = call("--help")
    assert shown.status == 0
    listed = shown.out.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(FUNCTIONS)
    assert not [line for line in listed if "..." in line]
    assert max(map(len, shown.out.splitlines())) <= 80
    without = call()
    assert (without.status, without.out, without.err) == (2, shown.out, "")


def test_defaults_in_the_help_are_those_of_the_config(call):
    """Guards against a help text that was not updated when a default changed."""
    found = entries(call("train", "--help").out)
    kits = {**MUSIC.presets, **MUSIC.kinds["drums"]}
    others = {"drums": asdict(resolve({}, presets=kits))}
    others["audio"] = asdict(resolve({}, presets=AUDIO.presets))
    without = {field.name for field in fields(Config) if field.metadata["group"] is None}
    for name, value in asdict(resolve({}, presets=MUSIC.presets)).items():
        if name in without or value is None:
            continue
        option = "--" + name.replace("_", "-")
        text = next(text for entry, text in found.items() if option in re.split(r"[ ,]+", entry))
        differ = {kind: its[name] for kind, its in others.items() if its[name] != value}
        also = "".join(f"; {kind}: {str(other).lower()}" for kind, other in differ.items())
        assert f"[default: {str(value).lower()}{also}]" in text.replace("- ", "-")  # wrapped


@pytest.mark.parametrize("command", ["train", "compare"])
def test_examples_can_be_typed(command, call):
    """Guards against an example with an option that is gone; they are shown line by line."""
    text, _, examples = call(command, "--help").out.partition("\nExamples:\n")
    assert examples.count(f"  seqmodel {command} ") == examples.count("\n") == 2
    assert all(f" {word}" in text for word in examples.split() if word.startswith("-"))


def test_help_and_completion_load_nothing_heavy():
    """Guards against an import that makes `--help` or Tab wait for torch."""
    script = f"""
import os, sys
from seqmodel.cli.main import main
def say(*words):
    sys.argv = ['seqmodel', *words]
    try: main()
    except SystemExit: pass
for command in sys.argv[1:]: say(command, '--help')
os.environ |= {{'_SEQMODEL_COMPLETE': 'complete_bash', 'COMP_CWORD': '5',
    'COMP_WORDS': 'seqmodel train --device cuda --unit mg'}}
say(), print('LOADED', [name for name in {HEAVY} if name in sys.modules])
"""
    command = [sys.executable, "-c", script, *FUNCTIONS]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.endswith("\nmgu\nLOADED []\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tr", ["train"]),
        ("train --note-unit mg", ["mgu"]),
        ("compare --units gru,lstm-", ["gru,lstm-nopeephole"]),
        ("eval ", []),  # paths: left to the shell
    ],
)
def test_words_are_completed(call, monkeypatch, words, expected):
    """As the script that typer installs asks for them; guards against names out of date."""
    monkeypatch.setenv("_SEQMODEL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"seqmodel {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    assert call().out.split() == expected


def test_repeated_names_match_their_originals():
    """Guards against a new backend or activation that is missing from completion."""
    from seqmodel.units.backends import AUTO, BACKENDS
    from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS

    among = {field.name: field.metadata["among"] for field in fields(Config)}
    assert (AUTO, *BACKENDS) == among["backend"]
    assert tuple(ACTIVATIONS) == among["activation"]
    assert tuple(GATE_ACTIVATIONS) == among["gate_activation"]


@pytest.mark.parametrize(
    "options",
    [
        "--preset paper --unit mgu",
        "--params 5000 --layers 2 --unit gru2 --no-bias",
        "--lr search --trials 3 --schedule constant --optimizer rmsprop --weight-noise 1e-3",
    ],
)
def test_printed_config_is_unchanged_when_read_back(options, call):
    """Guards against settings that are lost, or mean something else, in the YAML file."""
    printed = call("train", "--print-config", *options.split())
    assert (printed.status, printed.err) == (0, "")
    assert list(yaml.safe_load(printed.out)) == [field.name for field in fields(Config)]
    assert yaml.safe_load(printed.out)["hidden"] is not None
    Path("c.yaml").write_text(printed.out)
    assert call("train", "--config", "c.yaml", "--print-config").out == printed.out


NOTES = {"note_unit": "lstm", "note_hidden": 32, "note_layers": 1, "first_change": True}
NO_SEARCH = {"learning_rate_draws": 0, "tpe_trials": 0, "bracket_trials": 0}
FILE = "unit: gru\nepochs: 7\nhidden: 30\n"


@pytest.mark.parametrize(
    ("file", "options", "expected"),
    [
        ("", "", {**asdict(resolve({}, presets=MUSIC.presets)), **NOTES, "unit": "lstm"}),
        (FILE, "", {"unit": "gru", "hidden": 30, "epochs": 7, "seed": 1}),
        # An option also overrides a setting in the file that it excludes.
        (FILE, "--params 5000 --model frame-wise", {"hidden": 9, "params": None}),
        ("params: 5000", "--hidden 9", {"hidden": 9, "params": None}),
        ("learning_rate_draws: 3", "--lr 0.5", {"learning_rate": 0.5, **NO_SEARCH}),
        ("learning_rate_draws: 3", "", {"learning_rate_draws": 3}),  # as always, with any preset
        ("learning_rate_draws: 3", "--lr search", {**NO_SEARCH, "bracket_trials": 7}),
        ("tpe_trials: 3", "--trials 5", {**NO_SEARCH, "bracket_trials": 5}),
        ("preset: paper", "--trials 5", {**NO_SEARCH, "learning_rate_draws": 5}),
        ("", "--preset paper --lr search", {**NO_SEARCH, "learning_rate_draws": 10}),
        ("preset: paper", "", {"hidden": 36, "epochs": 500, "learning_rate_draws": 10}),
        ("preset: paper", "--epochs 4 --unit gru", {"hidden": 46, "epochs": 4}),
        ("bias: false", "--bias", {"bias": True}),
        ("end: true", "--no-end", {"end": False}),
        ("", "--output nade", {"model": "frame-wise", "hidden": 200}),
        ("", "--output bernoulli", {"model": "tied", "note_unit": None}),
        ("", "--model frame-wise", {"hidden": 200, "epochs": 40, "end": True}),
    ],
)
def test_option_before_file_before_preset_before_default(file, options, expected, call):
    """Guards the precedence of settings, including those that exclude each other."""
    Path("c.yaml").write_text(file)
    printed = call("train", "--config", "c.yaml", "--print-config", *options.split())
    assert printed.err == ""
    values = yaml.safe_load(printed.out)
    assert {name: values[name] for name in expected} == expected


def test_print_config_of_a_run_to_resume_trains_nothing(call, run):
    """Guards against --print-config being overlooked on --resume."""
    before = (run / "last.safetensors").read_bytes()
    printed = call("train", "--resume", "--run", run, "--print-config", "--epochs", 3)
    values = yaml.safe_load(printed.out)
    assert (values["hidden"], values["epochs"]) == (4, 3)
    assert (run / "last.safetensors").read_bytes() == before
