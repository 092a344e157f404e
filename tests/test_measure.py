"""The verdict on a cell: what only the sweep knows, then what the analysis reads in the request file."""

from types import SimpleNamespace

import pytest

from lib import measure, plan
from lib.client import Exchange

PLAN = plan.Plan(backends=["llama.cpp"], models=["tiny-trinity"], prompts=[100], gens=[4], requests=2, warmup=1)
CELL = plan.Cell("llama.cpp", "tiny-trinity", 100, 4)
AWAKE = {"wall_s": 5.0, "monotonic_s": 5.0}
DEATH = "server killed by SIGKILL"


def exchange(index, phase="profiling", **facts):
    ns = 10**18 + index * 10**9
    values = dict(
        first_token_ns=ns + 10**8, first_visible_ns=ns + 10**8, last_token_ns=ns + 4 * 10**8,
        chunk_ns=[ns + k * 10**8 for k in (1, 2, 3, 4)], prompt_tokens=111, completion_tokens=4, cached_tokens=0,
        target_isl=100, target_osl=4,
    )  # fmt: skip
    return Exchange(index=index, phase=phase, start_ns=ns, end_ns=ns + 5 * 10**8, **values | facts)


def verdict(tmp_path, exchanges, clocks=AWAKE, death=""):
    found = measure.judge(PLAN, exchanges, SimpleNamespace(death=lambda: death)) or measure._slept(clocks)
    if found is None:
        path = tmp_path / "profile_export.jsonl"
        with path.open("w") as out:
            for one in exchanges:
                measure.aiperf.append_record(out, one)
        found = measure._doubted(measure.aiperf.read_requests(path), CELL)
    return found.state, found.reason


def good(**facts):
    return [exchange(0, "warmup"), exchange(0), exchange(1, **facts)]


RESET = {"type": "reset", "message": "Connection reset by peer"}
TIMEOUT = {"type": "timeout", "message": "no end within 3 s"}


@pytest.mark.parametrize(
    ("exchanges", "clocks", "said"),
    [
        (good(), AWAKE, ("ok", "")),
        (good(error=TIMEOUT), AWAKE, ("failed", "1 of 2 requests failed; request 2: timeout: no end within 3 s")),
        (good(prompt_tokens=50), AWAKE, ("invalid", "truncated: the server saw 50 of 100 prompt tokens")),
        (good(cached_tokens=64), AWAKE, ("invalid", "the server reused 64 cached prompt tokens")),
        (
            good(), {"wall_s": 665.0, "monotonic_s": 5.0},
            ("invalid", "the machine slept or its clock was set: wall and monotonic clock part by 660.0 s"),
        ),
    ],
)  # fmt: skip
def test_verdicts(tmp_path, exchanges, clocks, said):
    assert verdict(tmp_path, exchanges, clocks) == said


def test_a_failed_warm_up_is_no_failed_cell(tmp_path):
    sent = [exchange(0, "warmup", error=TIMEOUT), exchange(0), exchange(1)]
    assert verdict(tmp_path, sent) == ("ok", "")


def test_a_servers_death_is_the_reason_also_in_the_last_request(tmp_path):
    early = [exchange(0, "warmup"), exchange(0, error=RESET)]
    assert verdict(tmp_path, early, death=DEATH) == ("failed", f"{DEATH} in request 2 of 3")
    assert verdict(tmp_path, good(error=RESET), death=DEATH) == ("failed", f"{DEATH} in request 3 of 3")
    assert verdict(tmp_path, good(), death=DEATH) == ("ok", ""), "it ended after the last answer"


def test_only_a_broken_connection_makes_the_sweep_wait_for_the_servers_end():
    assert measure._grace_s(exchange(0, error=RESET)) == measure.DYING_S
    assert measure._grace_s(exchange(0, error=TIMEOUT)) == 0
