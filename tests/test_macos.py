"""What a Mac's programs say, read from stand-ins: each value, each way to fail, and nothing where nothing is said."""

from types import SimpleNamespace

import pytest

from lib import machine, macos


@pytest.fixture
def said(monkeypatch):
    """A function that sets what every program says from now on."""
    return lambda text: monkeypatch.setattr(macos, "said", lambda *_: text)


def levels():
    return {f.about: (f.level, f.found) for f in macos.findings()}


def test_the_facts_of_the_machine(mac):
    found = machine.facts()
    assert (found["machine"], found["chip"], found["memory_bytes"]) == ("Mac16,10", "Apple M4", 16 * 2**30)
    assert (found["os"], found["os_build"]) == ("macOS 15.5", "24F74")


def test_a_mac_mini_at_rest(mac):
    assert levels() | {"clock": None} == {
        "mains": ("ok", "on mains power"),
        "low power": ("ok", "Low Power Mode is off"),
        "sleep": ("ok", "system never, display never; a sweep holds both off (caffeinate)"),
        "heat": ("ok", "thermal pressure Nominal"),
        "memory": ("ok", "memory pressure normal, 71 % free"),
        "clock": None,
    }


@pytest.mark.parametrize(
    ("wrong", "about", "level", "found"),
    [
        ({"power": "battery"}, "mains", "warning", "runs on Battery Power, which limits the clock"),
        ({"low_power": "1"}, "low power", "warning", "Low Power Mode is on, which limits the clock"),
        ({"pmset": "absent"}, "low power", "warning", "unknown: 'pmset -g' does not answer"),
        ({"pmset": "absent"}, "mains", "ok", "no battery that pmset knows of"),
        ({"thermal": "Heavy"}, "heat", "warning", "thermal pressure Heavy: the chip is held back"),
        ({"memory": "warning"}, "memory", "warning", "memory pressure warning, 14 % free: a model would be swapped"),
        ({"memory": "critical"}, "memory", "error", "memory pressure critical, 4 % free: a model would be swapped"),
    ],
)
def test_what_is_wrong_is_said(mac, wrong, about, level, found):
    mac(**wrong)
    assert levels()[about] == (level, found)


def test_sleep_is_no_matter_where_caffeinate_holds_it_off(mac, monkeypatch):
    mac(sleep="10", display_sleep="5", awake="1")
    assert macos.power_settings()["sleep"] == "10", "what prevents it is not part of the value"
    assert levels()["sleep"] == ("ok", "system after 10 min, display after 5 min; a sweep holds both off (caffeinate)")
    monkeypatch.setattr(macos.shutil, "which", lambda _: None)
    assert levels()["sleep"][0] == "warning"


def test_settings_with_blanks_in_their_names(mac):
    found = macos.power_settings()
    assert (found["Sleep On Power Button"], found["SleepDisabled"], found["disksleep"]) == ("1", "0", "10")
    assert "Currently in use:" not in found


@pytest.mark.parametrize(
    ("text", "on"),
    [
        (" lowpowermode         1\n", True), (" lowpowermode 0\n", False), (" powermode            1\n", True),
        (" powermode            2\n", False), (" sleep 1\n", False), ("", None), (None, None),
    ],
)  # fmt: skip
def test_low_power_mode_under_both_its_names(said, text, on):
    said(text)
    assert macos.low_power_mode() is on


@pytest.mark.parametrize("text", [None, "", "pmset: no such thing", "\x1b[31m\x00"])
def test_words_that_are_not_understood_are_unknown(said, text):
    said(text)
    assert macos.power_source() is macos.thermal_pressure() is macos.memory_free_pct() is None


def test_a_level_that_nobody_has_named_is_no_nominal(said):
    said("com.apple.system.thermalpressurelevel 7")
    assert macos.thermal_pressure() == "level 7"
    said("8")
    assert macos.memory_pressure() == "level 8"


def test_the_clock_is_kept_where_timed_runs(mac, monkeypatch):
    assert levels()["clock"] == ("warning", "unknown: timed, which keeps it, does not run")
    running = [SimpleNamespace(info={"name": name}) for name in ("launchd", None, "timed")]
    monkeypatch.setattr(macos.psutil, "process_iter", lambda _: running)
    assert levels()["clock"] == ("ok", "kept by timed; how well, only root may ask")


def test_rosetta_is_seen(said):
    said("1")
    assert macos.translated()
    said(None)
    assert not macos.translated()
