"""The correctors that can be trained, by name. As in catalog.py, a new one adds a factory here."""

from __future__ import annotations

from dcoco_core.correctors.trainable import TrainableCorrector, TrainingSource
from dcoco_core.errors import ConfigError
from dcoco_core.registry import Registry

TRAINABLE: Registry[TrainableCorrector] = Registry("trainable corrector")


@TRAINABLE.register("dcoco")
def _dcoco(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dcoco.trainable import new_dcoco

    return new_dcoco(source)


@TRAINABLE.register("dcoco-paper")
def _dcoco_paper(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dcoco.trainable import new_dcoco

    if source.design:
        raise ConfigError("dcoco-paper is the published form: its design cannot be chosen")
    return new_dcoco(source)


@TRAINABLE.register("dflash2-selector")
def _dflash2_selector(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dflash2.trainable import new_selector

    return new_selector(source)


@TRAINABLE.register("lilicorr")
def _lilicorr(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.lilicorr.trainable import new_lilicorr

    return new_lilicorr(source)


@TRAINABLE.register("domino")
def _domino(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.domino.trainable import new_domino

    return new_domino(source)


@TRAINABLE.register("dspark-vanilla")
def _dspark_vanilla(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dspark.trainable import new_dspark

    return new_dspark(source, "vanilla")


@TRAINABLE.register("dspark-gated")
def _dspark_gated(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dspark.trainable import new_dspark

    return new_dspark(source, "gated")


@TRAINABLE.register("dspark-rnn")
def _dspark_rnn(source: TrainingSource) -> TrainableCorrector:
    from dcoco_core.correctors.dspark.trainable import new_dspark

    return new_dspark(source, "rnn")
