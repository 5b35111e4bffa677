"""Settings of a run: groups, presets, flags and TOML files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rankbits import Refusal, TrainConfig
from rankbits.cli import main
from rankbits.commands import learn
from rankbits.train import config as settings
from rankbits.train.config import PRESETS, NetworkSettings, OptimiserSettings, Settings

GROUPS = Settings.__subclasses__()
TRAINING = Path(__file__).parent.parent / "docs" / "training.md"


def names(cls):
    return [field.name for field in dataclasses.fields(cls)]


def test_each_setting_is_in_one_group():
    grouped = [name for group in GROUPS for name in names(group)]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) | {"preset"} == set(names(TrainConfig))
    assert all(2 < len(names(group)) < 10 for group in GROUPS)


def test_help_shows_the_flags_by_group(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    shown = shown[shown.index("\noptions:") :]
    places = [shown.index(f"\n{group.title}:\n") for group in GROUPS]
    assert places == sorted(places) and shown.index("--preset") < places[0]
    for group, start, stop in zip(GROUPS, places, [*places[1:], None], strict=True):
        part = shown[start:stop].split()
        assert all(f"--{name.replace('_', '-')}" in " ".join(part) for name in names(group))


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_given_replaces_a_preset(preset):
    chosen, plain = PRESETS[preset], TrainConfig()
    config = TrainConfig(preset=preset)
    assert {name: getattr(config, name) for name in chosen} == chosen
    assert all(getattr(plain, name) != value for name, value in chosen.items())
    for name in chosen:  # though it is the default
        assert getattr(TrainConfig(preset=preset, **{name: getattr(plain, name)}), name) == getattr(
            plain, name
        )
    again = config.with_changes(seed=3)
    assert again.facts() == config.facts() | {"seed": 3}
    assert TrainConfig().with_changes(preset=preset) == config
    assert TrainConfig(**config.facts()) == config


def test_a_preset_fills_what_still_has_its_default():
    tuned = TrainConfig(dim=32, lr=1e-5).with_preset("fine-tune")
    assert tuned == TrainConfig(preset="fine-tune", dim=32, lr=1e-5) and tuned.optimizer == "adamw"


def test_groups_may_be_given_whole():
    config = TrainConfig(NetworkSettings(bits=8), OptimiserSettings(lr=0.5, clip=1.0), lr=0.25)
    assert (config.bits, config.lr, config.clip) == (8, 0.25, 1.0)
    with pytest.raises(Refusal, match="lr must be above 0"):
        OptimiserSettings(lr=0)
    with pytest.raises(Refusal, match="not both"):
        NetworkSettings(bits=8, dim=8)


@pytest.fixture
def trained(monkeypatch):
    """The settings that ``rankbits train`` would train with."""
    configs: list[TrainConfig] = []

    def suit(config):
        configs.append(config)
        raise Refusal("Enough.")

    monkeypatch.setattr(learn, "suit_photographs", suit)
    return configs


def test_a_flag_wins_over_toml_and_toml_over_the_preset(trained, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('data = "x"\nout = "y"\npreset = "fine-tune"\nlr = 0.5\nwarmup = 0.25\n')
    main(["train", str(file), "--warmup", "0.125"])
    (config,) = trained
    assert (config.preset, config.lr, config.warmup) == ("fine-tune", 0.5, 0.125)
    assert config.optimizer == "adamw" and config.batch_size == 256


def test_unknown_keys_are_refused_with_the_nearest_name(trained, tmp_path, capsys):
    with pytest.raises(Refusal, match=r"no 'warm_up' \(did you mean 'warmup'"):
        TrainConfig(warm_up=0.1)
    with pytest.raises(Refusal, match=r"'fine-tune', .*got 'finetune' \(did you mean 'fine-tune'"):
        TrainConfig(preset="finetune")
    file = tmp_path / "run.toml"
    file.write_text('data = "x"\nout = "y"\nepoch = 3\n')
    assert main(["train", str(file)]) == 1
    assert "unknown key 'epoch' (did you mean 'epochs'?)" in capsys.readouterr().err
    assert main(["train", "x", "-o", "y", "--presets", "frozen"]) == 1
    assert "no flag --presets (did you mean '--preset'?)" in capsys.readouterr().err
    assert not trained


def test_a_preset_that_starts_from_random_weights_is_not_overruled(tmp_path):
    for preset in PRESETS:
        config = TrainConfig(data=str(tmp_path), preset=preset)
        assert learn.suit_photographs(config) == (config, None)


def test_the_documents_list_the_presets():
    text = TRAINING.read_text("utf-8")
    for preset, chosen in PRESETS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{preset}`"))
        for name, value in chosen.items():
            spelled = f'"{value}"' if isinstance(value, str) else f"{value:g}"
            assert f"`{name} = {spelled}`" in row, (preset, name)
    for group in GROUPS:
        assert f"`{group.title}`" in text
    assert settings.MAY_CHANGE[0] == "preset"
