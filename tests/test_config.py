"""Settings: whether option, file, preset or default applies, and errors for invalid ones."""

import math
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import yaml
from refusals import refused

from seqmodel.config import Config, parse_setting, read_config_file, resolve, setting
from seqmodel.errors import SeqmodelError, UsageError


@pytest.fixture
def read(tmp_path):
    """A function that reads a text as a config file."""

    def read(text):
        (tmp_path / "c.yaml").write_text(text)
        return read_config_file(tmp_path / "c.yaml")

    return read


def test_a_mediums_presets_override_general_ones_and_are_overridden_by_given_values():
    presets = {"default": {"dropout": 0.1, "epochs": 3}, "paper": {"epochs": 5, "clip": 2.0}}
    config = resolve({"epochs": 9}, {"preset": "paper", "seed": 7}, presets)
    assert (config.epochs, config.clip, config.seed) == (9, 2.0, 7)
    assert config.optimizer == "rmsprop"  # the general preset's, if the medium has none
    assert resolve({}, None, presets).dropout == 0.1
    assert resolve({}, {"dropout": 0.2}, presets).dropout == 0.2


def test_a_whole_runs_file_means_neutral_values_by_what_it_lacks(read):
    """A run's config.yaml from before `bars` used to get bars and ages beside its `metre`."""
    presets = {"default": {"model": "tied"}}
    run = {**resolve({"hidden": 5, "metre": True}, None, presets).__dict__}
    for name in ("bars", "ages", "motifs", "first_change", "rests"):
        del run[name]
    config = resolve({}, read(yaml.safe_dump(run)), presets)
    assert (config.metre, config.bars, config.ages, config.motifs) == (True, False, False, False)
    assert (config.model, config.echo, config.hidden) == ("tied", True, 5)
    assert resolve({"ages": True}, read(yaml.safe_dump(run)), presets).ages
    assert resolve({}, read("hidden: 5\n"), presets).bars  # a file of a few settings


def test_a_given_search_replaces_another():
    """A preset's, or the file's; files from before there were two searches keep their meaning."""
    searches = lambda config: (config.learning_rate_draws, config.tpe_trials)  # noqa: E731
    assert searches(resolve({}, {"learning_rate": 0.01, "learning_rate_draws": 3})) == (3, 0)
    assert searches(resolve({"tpe_trials": 4}, {"preset": "paper"})) == (0, 4)
    assert searches(resolve({"tpe_trials": 4}, {"learning_rate_draws": 3})) == (0, 4)
    assert searches(resolve({"learning_rate": 0.1}, {"tpe_trials": 4})) == (0, 0)
    with pytest.raises(UsageError, match="learning_rate_draws and tpe_trials exclude each other"):
        resolve({}, {"learning_rate_draws": 3, "tpe_trials": 4})


def test_a_unit_may_be_the_path_of_its_file(tmp_path, monkeypatch):
    """Guards against a run of a unit called my.unit, which nothing can build."""
    monkeypatch.chdir(tmp_path)
    Path("my.unit").write_text("h = W x")
    for given in ("my.unit", Path("my.unit")):
        config = resolve({"unit": given}, {"note_unit": given})
        assert config.unit == config.note_unit == "h = W x\nunit: my\n"
    with pytest.raises(SeqmodelError, match=r"there is no file our\.unit; did you mean my\.unit\?"):
        resolve({"unit": "our.unit"})


def test_size_and_budget_exclude_each_other(read):
    """Unless one is an option: it overrides both in the file."""
    with pytest.raises(UsageError, match=r"^--hidden and --params exclude each other"):
        resolve({"hidden": 5, "params": 100}, {})
    with pytest.raises(UsageError, match=r"^hidden and params exclude each other: leave one out$"):
        resolve({}, read("hidden: 5\nparams: 100"))
    assert resolve({"params": 100}, {"hidden": 5}).hidden is None
    assert resolve({"hidden": 5}, {"params": 100}).params is None
    assert resolve({"params": 100}).hidden is None  # a budget overrides the preset's size
    assert resolve({"hidden": 7}).hidden == 7


def test_minutes_exclude_epochs_and_patience_only_where_both_are_given():
    """A run by minutes could not be resumed with another --patience."""
    for name in ("epochs", "patience"):
        with pytest.raises(UsageError, match=rf"^--{name} and --minutes exclude each other"):
            resolve({"minutes": 5, name: 3})
    with pytest.raises(UsageError, match=r"^epochs and minutes exclude each other: leave one out$"):
        resolve({}, {"minutes": 5, "epochs": 3})
    stored = {"minutes": 5, "epochs": 0, "patience": 10}
    assert resolve({"patience": 3}, stored).patience == 3
    assert resolve({"minutes": 7}, stored).minutes == 7
    assert resolve({"epochs": 3}, stored).minutes is None


def test_every_number_has_a_range():
    """A new setting without one would let nan through to training."""
    numbers = [f for f in fields(Config) if f.type in (int, float, int | None)]
    for number in numbers:
        for value in (-1, math.nan) if number.type is float else (-1,):
            option = f"--{number.name.replace('_', '-')}"
            with pytest.raises(UsageError, match=f"{option} must be .*{value}") as caught:
                resolve({number.name: value})
            assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("epochs: many", "epochs must be a whole number, not 'many'"),
        ("epochs: 2.5", "epochs must be a whole number, not 2.5"),
        ("epochs: true", "epochs must be a whole number, not True"),
        ("bias: 1", "bias must be true or false, not 1"),
        ("dropout: true", "dropout must be a number, not True"),
        ("dropout: half", "dropout must be a number, not 'half'"),
        ("unit: 3", "unit must be text, not 3"),
        ("unit:", "unit must be text, not null"),
        ("hidden: [1]", "hidden must be a single value in line 1"),
        ("epochs: 3\nunit: {a: 1}", "unit must be a single value in line 2"),
        ("hidden: *x", "found undefined alias 'x' in line 1"),
        ("unit: 1\nunit: 2", "unit is given twice in line 2"),
        ("unit: !!timestamp x", "unit must be a value without a tag in line 1"),
        ("hidden: 010", "hidden must be a whole number or nothing, not '010'"),
        ("hidden: -0_10", "hidden must be a whole number or nothing, not '-0_10'"),
        ("minutes: 1:30", "minutes must be a number or nothing, not '1:30'"),
        ("seed: 0b_", "seed is not a valid number in line 1"),
        ("? [unit]\n: lstm", "a key is not a plain word in line 1"),
        ("unit: gru\n---\nunit: lstm", "holds more than one document in line 2"),
        ("hidden: 0", "hidden must be 1 or more, not 0"),
        ("dropout: .nan", "dropout must be 0 or more, not nan"),
        ("clip: .inf", "clip must be finite, not inf"),
        ("average: 1", "average must be below 1, not 1.0"),
        ("truncate: 1", "truncate must be 0 or at least 2, not 1: nothing would be remembered"),
        ("optimizer: sgd", "optimizer must be one of adam, rmsprop, not 'sgd'"),
        (f"seed: {2**64}", f"seed must be {2**63 - 1} or less, not {2**64}"),
        (f"seed: 0x{'f' * 4000}", "seed is out of range"),
        (f"clip: {'9' * 400}", "clip is out of range"),
    ],
)
def test_a_wrong_value_is_told_with_its_file_and_no_option(read, tmp_path, text, wrong):
    """A user who typed no option is not told to change one; no number is too long to report."""
    with pytest.raises(SeqmodelError) as caught:
        read(text)
    assert (str(caught.value), caught.value.exit_status) == (f"{tmp_path}/c.yaml: {wrong}", 1)


@pytest.mark.parametrize(
    "content",
    [
        *(b"- a\n- b", b"lstm", b"{", b"a: b: c", b"\x00", b"\xff\xfe\xff", b"\t- x"),
        *(rb'unit: "\UFFFFFFFF"', rb'unit: "\U00110000"'),
        *(b"[" * 500, b"unit: " + b"[" * 500, b"unit: " + b"{a: " * 1500),
        *(b"seed: " + b"1" * 5001, b"unit: " + b"x" * 5000, b"unit: lstm" + b"\n" * 2**16),
        b"unit: &a [x, x]\n" + b"\n".join(b"k%d: &b%d [*a, *a]" % (n, n) for n in range(99)),
    ],
    ids=len,
)
def test_what_is_no_yaml_mapping_or_expensive_is_refused_at_once_by_name(tmp_path, content):
    """500 brackets used to cause a traceback; aliases of aliases took over a minute."""
    (tmp_path / "c.yaml").write_bytes(content)
    assert len(refused(lambda: read_config_file(tmp_path / "c.yaml"), tmp_path / "c.yaml")) < 300


@pytest.mark.parametrize("name", ["2001-13-45", "2024-02-30", "2024-02-03", "=", "<<"])
def test_what_looks_like_a_date_stays_a_name(read, name):
    """A dataset called 2024-02-03 used to be refused; 2024-02-30 caused a traceback."""
    assert read(f"data: {name}") == {"data": name}
    assert parse_setting("data", name, "--set") == name


@pytest.mark.parametrize("text", ["[", "[1]", "*x", "1: 2", "!!int x", "1" * 5000])
def test_an_invalid_option_value_is_refused(text):
    with pytest.raises(UsageError, match="--set: seed"):
        parse_setting("seed", text, "--set")
    with pytest.raises(UsageError, match="--set: hidden must be 1 or more, not 0"):
        parse_setting("hidden", "0", "--set")


@pytest.mark.parametrize(("text", "rate"), [("1", 1.0), ("1e-3", 0.001), ("1.0e-3", 0.001)])
def test_a_rate_may_be_written_in_any_common_notation(read, text, rate):
    """YAML reads 1e-3 as a string, which nobody who writes it means."""
    value = read(f"learning_rate: {text}")["learning_rate"]
    assert type(value) is float
    assert value == rate


def test_yaml_runs_no_code(read, tmp_path):
    with pytest.raises(SeqmodelError, match="unit must be a single value"):
        read(f"unit: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']")
    assert not (tmp_path / "made").exists()
    assert read("# only a remark\n") == {}


# ---- compatibility between versions -------------------------------------------------------------

ORIGIN = Path("runs/x/best.safetensors")
VERSION_1 = (
    *("data", "preset", "unit", "hidden", "params", "layers", "gate_activation", "activation"),
    *("bias", "dropout", "output", "components", "end", "backend", "optimizer", "learning_rate"),
    *("learning_rate_draws", "schedule", "weight_noise", "clip", "average", "batch_size"),
    *("truncate", "epochs", "patience", "augment_keys", "seed"),
)


@dataclass(frozen=True)
class Newer(Config):
    """A version with two more settings; before they existed, nothing was tied or tiered."""

    tiers: int = setting(1, "Tiers.")
    tied: bool = setting(False, "Tied.")


NEUTRAL = {
    **{"labels": "all", "model": "frame-wise", "echo": False, "clock": False, "bars": False},
    **{"metre": False, "held": False, "ages": False, "motifs": False, "rests": False},
    **{"first_change": False, "note_unit": None, "note_hidden": None, "note_layers": None},
    **{"nade_hidden": 200, "tpe_trials": 0, "bracket_trials": 0, "input_noise": 0.0},
    **{"steering": 0.0, "carry_over": 0.0, "weight_dropout": 0.0, "zoneout": 0.0, "parts": 1},
    **{"minutes": None, "valid_every": "auto", "by_part": False},
}


def test_names_and_neutral_values_never_change():
    """Golden: equal runs have equal bytes, including those of version 1; and a new default of a
    neutral setting would give every older run another meaning."""
    assert tuple(Config().to_json())[: len(VERSION_1)] == VERSION_1
    assert Config.neutral().items() >= NEUTRAL.items()


def test_a_checkpoint_of_another_version_takes_or_omits_neutral_values():
    """Anything else would be a different model from the one that was trained; and older versions
    can read what does not use the new settings."""
    newer = Newer.from_json(Config(hidden=3).to_json(), ORIGIN)
    assert (newer.hidden, newer.tiers, newer.tied) == (3, 1, False)
    before_audio = {k: v for k, v in Config().to_json().items() if k != "components"}
    assert Config.from_json(before_audio, ORIGIN) == Config()
    assert Config.from_json(Newer().to_json(), ORIGIN) == Config()
    for newer in (Newer(), Newer(tiers=2, tied=True)):
        assert Newer.from_json(newer.to_json(), ORIGIN) == newer


def test_an_unknown_setting_is_refused_by_name():
    """Used to be a TypeError with a traceback; ignoring it would silently change the model."""
    says = (
        f"{ORIGIN} has the unknown setting 'tiers': it was written by a newer version of seqmodel"
    )
    refused(lambda: Config.from_json(Newer(tiers=2).to_json(), ORIGIN), says)
