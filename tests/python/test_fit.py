"""Plans that do not fit: what is proposed does fit."""

import itertools
import os

import pytest
import strata
from strata import Config, OutOfMemoryPlanError, _core, fit


def needs(path, **settings):
    """Bytes that a load takes at least, automatic sizes at their smallest."""
    with pytest.raises(OutOfMemoryPlanError) as caught:
        _core.memory_plan(os.fsencode(path), Config(ram_gb=1e-9, **settings).to_core())
    return caught.value.needed


@pytest.fixture
def refused():
    """The error of loading the demo model with a memory of so many bytes."""

    def call(room, **settings):
        config = Config(ram_gb=room / 1e9, **settings)
        with pytest.raises(OutOfMemoryPlanError) as caught:
            strata.load(strata.demo_path(), config)
        return config, caught.value

    return call


@pytest.mark.parametrize(
    "settings", [{}, {"activations": "f32"}, {"prompt_sweep": 4096}, {"prompt_sweep": 2048, "kv_type": "f32"}]
)
@pytest.mark.parametrize("share", [0.97, 0.9, 0.82])
def test_every_proposal_fits(refused, settings, share):
    least = needs(strata.demo_path(), **settings)
    config, error = refused(least * share, **settings)
    assert error.needed == least and error.available == pytest.approx(least * share, abs=1)
    assert f"short by {(error.needed - error.available) / 1e6:.3g} MB" in str(error)
    assert error.settings  # in so small a model little but context and chunk takes memory
    for way in error.settings:
        assert " and ".join(f"{name} = {value}" for name, value in way.items()) in str(error)
        with strata.load(strata.demo_path(), config.override(**way)) as model:
            assert sum(count for _, count in model.plan) <= error.available
            assert model.prefill([1, 2, 3]).stats["tokens"] == 3
    # None is another one with something more.
    assert not any(a.items() <= b.items() for a, b in itertools.permutations(error.settings, 2))


@pytest.mark.parametrize(
    ("room", "settings"),
    [
        (6.2e9, {}),
        (6.1e9, {}),
        (6.25e9, {"kv_type": "f32"}),
        (12e9, {"arena_gb": 9, "context": 65536}),
        (9e9, {"arena_gb": 4}),
    ],
)
def test_the_real_shapes(real_header, room, settings):
    config = Config(ram_gb=room / 1e9, **settings)
    with pytest.raises(OutOfMemoryPlanError) as caught:
        fit.memory_plan(real_header, config)
    assert 1 <= len(caught.value.settings) <= 3
    for way in caught.value.settings:
        lines = _core.memory_plan(os.fsencode(real_header), config.override(**way).to_core())["lines"]
        assert sum(count for _, count in lines) <= room


def test_an_arena_that_is_too_large(real_header):
    config = Config(ram_gb=12, arena_gb=9)
    with pytest.raises(OutOfMemoryPlanError) as caught:
        fit.memory_plan(real_header, config)
    automatic = fit.memory_plan(real_header, config.override(arena_gb=0))["config"]["arena_gb"]
    assert caught.value.settings[0] == {"arena_gb": pytest.approx(automatic, abs=0.001)}


def test_nothing_fits(refused):
    least = needs(strata.demo_path(), context=256, prompt_chunk=1, prompt_sweep=1, threads=1)
    _, error = refused(least * 0.9)
    assert error.settings == () and f"the least is {least / 1e6:.3g} MB" in str(error)


def test_another_lack_of_memory_is_left_as_it_is(monkeypatch):
    def refuse(*_):
        raise OutOfMemoryPlanError("the system has no memory")

    monkeypatch.setattr(_core, "Engine", refuse)
    with pytest.raises(OutOfMemoryPlanError, match="the system has no memory"):
        strata.load(strata.demo_path())


def test_plan_of_a_model_that_fits():
    plan = fit.memory_plan(strata.demo_path(), Config(context=256))
    assert plan["config"]["context"] == 256 and sum(count for _, count in plan["lines"]) <= plan["available"]
