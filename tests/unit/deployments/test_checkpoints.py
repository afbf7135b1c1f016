"""What the arguments point to is checked before any replica starts."""

from pathlib import Path

import pytest

from dcoco_core.errors import CheckpointError, ConfigError
from deployments.checkpoints import check
from deployments.config import AppArgs
from tests import tiny_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    target = tiny_model.write_target(root / "target")
    drafter = tiny_model.write_drafter(root / "drafter", target)
    tiny_model.write_corrector(root / "corrector", target, drafter)
    return root


def arguments(folders: Path, **changes: object) -> AppArgs:
    values: dict[str, object] = {
        "target": str(folders / "target"),
        "drafter": str(folders / "drafter"),
        "correctors": {"none": None, "dcoco": str(folders / "corrector")},
        "default_corrector": "dcoco",
    }
    return AppArgs.model_validate(values | changes)


def test_what_follows_from_the_arguments(folders: Path) -> None:
    checked = check(arguments(folders))
    assert checked.target_folder == folders / "target"
    assert checked.facts.served_name == checked.args.served_model_name == "target"
    assert checked.facts.max_num_draft_tokens == 7
    assert checked.facts.default_speculation.num_draft_tokens == 7
    assert checked.facts.default_speculation.corrector == "dcoco"
    assert checked.facts.correctors == ("none", "dcoco")


def test_the_number_of_proposals_can_be_chosen(folders: Path) -> None:
    checked = check(arguments(folders, num_draft_tokens=3, served_model_name="m"))
    assert checked.facts.default_speculation.num_draft_tokens == 3
    assert checked.facts.max_num_draft_tokens == 7
    assert checked.facts.served_name == "m"
    with pytest.raises(ConfigError, match=r"num_draft_tokens is 8, but the drafter .* at most 7"):
        check(arguments(folders, num_draft_tokens=8))


def test_relative_paths_become_absolute(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    args = check(AppArgs(target="target", drafter="drafter")).args
    assert args.target == str(folders / "target")
    assert args.drafter == str(folders / "drafter")


def test_without_a_drafter_everything_is_plain(folders: Path) -> None:
    facts = check(AppArgs(target=str(folders / "target"))).facts
    assert facts.max_num_draft_tokens == facts.default_speculation.num_draft_tokens == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drafter": "/nowhere/d"}, "drafter: the checkpoint folder /nowhere/d does not exist"),
        (
            {"correctors": {"dcoco": "/nowhere/c"}},
            "correctors.dcoco: the checkpoint folder /nowhere/c does not exist",
        ),
    ],
)
def test_missing_checkpoints_are_named(folders: Path, changes: object, said: str) -> None:
    assert isinstance(changes, dict)
    with pytest.raises(CheckpointError, match=said):
        check(arguments(folders, **changes))


def test_a_folder_without_a_config_is_named(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        check(arguments(folders, drafter=str(tmp_path)))


def test_unknown_correctors_are_named(folders: Path) -> None:
    changes = {"correctors": {"dcocoo": None}, "default_corrector": "dcocoo"}
    with pytest.raises(ConfigError, match=r"unknown corrector 'dcocoo'. Did you mean 'dcoco'"):
        check(arguments(folders, **changes))


def test_a_corrector_of_another_drafter_is_refused(folders: Path, tmp_path: Path) -> None:
    other = tiny_model.write_drafter(tmp_path / "other", folders / "target", seed=5)
    with pytest.raises(CheckpointError, match=r"correctors\.dcoco: .* was trained for drafter"):
        check(arguments(folders, drafter=str(other)))
    with pytest.raises(CheckpointError, match="is no corrector checkpoint"):
        check(arguments(folders, correctors={"none": None, "dcoco": str(folders / "drafter")}))


def test_the_context_fits_the_models(folders: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len is 100000, but the target has \d+ pos"):
        check(arguments(folders, max_model_len=100_000))
