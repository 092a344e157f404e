import pytest

from lib import plan
from lib.files import TinymoeError

BASE = """
backends: [llama.cpp, mlx-lm]
models: [tiny-trinity, tiny-lfm2.5]
prompts: [128, 512]
gens: [32, 64]
requests: 5
seed: 3
"""


def write(tmp_path, text, name="p.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_the_committed_plans_are_valid():
    for path in plan.PLANS.glob("*.yaml"):
        assert plan.load(path.stem).name == path.stem


def test_the_published_sweep_is_the_whole_grid_in_its_published_order():
    found = plan.load("mac-mini-m4")
    for backend in ("llama.cpp", "mlx-lm"):
        cells = [c for c in plan.selected(found) if c.backend == backend]
        assert len(cells) == 6 * 18
        assert {len(found.cells(backend, m)) for m in found.models} == {18}
        for model in found.models:
            listed = [(c.gen, c.ctx) for c in found.cells(backend, model)]
            assert (listed[0], listed[-1]) == ((256, 256), (1024, 30720)), "the canonical cell comes last"
    assert (found.requests, found.power, found.ctx_size, found.free_eos) == (20, "powermetrics", 32000, [])
    assert found.prompts == [256, 512, 1024, 2048, 4096, 30720] and found.gens == [256, 512, 1024]


def test_cells_are_the_whole_grid_shuffled_by_the_seed(tmp_path):
    found = plan.load(write(tmp_path, BASE))
    cells = found.cells("llama.cpp", "tiny-trinity")
    assert {(c.ctx, c.gen) for c in cells} == {(128, 32), (128, 64), (512, 32), (512, 64)}
    assert cells == found.cells("llama.cpp", "tiny-trinity"), "the order must be the seed's"
    orders = {
        tuple(plan.load(write(tmp_path, BASE.replace("3", str(s)))).cells("mlx-lm", "tiny-trinity")) for s in range(9)
    }
    assert len(orders) > 1
    listed = plan.load(write(tmp_path, BASE + "order: as-listed\n")).cells("llama.cpp", "tiny-trinity")
    assert [(c.gen, c.ctx) for c in listed] == [(32, 128), (32, 512), (64, 128), (64, 512)]


def test_only_keeps_part_of_a_backend_or_model(tmp_path):
    found = plan.load(write(tmp_path, BASE))
    assert {(c.backend, c.model) for c in plan.selected(found, "mlx")} == {
        ("mlx-lm", "tiny-trinity"), ("mlx-lm", "tiny-lfm2.5"),
    }  # fmt: skip
    assert {c.model for c in plan.selected(found, "lfm")} == {"tiny-lfm2.5"}
    with pytest.raises(TinymoeError, match="ONLY=nothing matches no backend or model"):
        list(plan.selected(found, "nothing"))


def test_ctx_size_holds_the_longest_cell_and_the_template(tmp_path):
    assert plan.load(write(tmp_path, BASE)).ctx_size == 1024  # 512 + 64 + 256, up to a multiple of 256


SKIP = "skip:\n  - {backend: mlx-lm, model: tiny-trinity, reason: not published%s}\n"


def test_skipped_cells_are_not_in_the_plan(tmp_path):
    one = plan.load(write(tmp_path, BASE + SKIP % ", ctx: 128, gen: 32"))
    assert {(c.ctx, c.gen) for c in one.cells("mlx-lm", "tiny-trinity")} == {(128, 64), (512, 32), (512, 64)}
    assert len(one.cells("llama.cpp", "tiny-trinity")) == 4 and len(list(plan.selected(one))) == 15
    length = plan.load(write(tmp_path, BASE + SKIP % ", gen: 64"))
    assert {c.gen for c in length.cells("mlx-lm", "tiny-trinity")} == {32}
    model = plan.load(write(tmp_path, BASE + SKIP % ""))
    assert ("mlx-lm", "tiny-trinity") not in model.servers() and len(list(plan.selected(model))) == 12


def test_what_is_skipped_does_not_change_the_hash_of_the_others(tmp_path):
    whole, less = (plan.load(write(tmp_path, BASE + more)) for more in ("", SKIP % ""))
    cell = whole.cells("llama.cpp", "tiny-lfm2.5")[0]
    assert whole.cell_hash(cell) == less.cell_hash(cell)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE + SKIP % ", ctx: 99", "skip: mlx-lm tiny-trinity ctx 99 is no cell of the plan"),
        (BASE + SKIP.replace("tiny-trinity", "tiny") % "", "skip: mlx-lm tiny is no cell of the plan"),
        (BASE + SKIP % ", prompt: 3", "unknown key 'skip.0.prompt'"),
        (BASE.replace("llama.cpp, ", "").replace(", tiny-lfm2.5", "") + SKIP % "", "skip: leaves no cell to run"),
        (BASE + "promts: [1]\n", "unknown key 'promts' (did you mean 'prompts'?)"),
        (BASE.replace("requests: 5", "requests: many"), "requests: Input should be a valid integer, got 'many'"),
        (BASE.replace("requests: 5", "requests: 0"), "requests: Input should be greater than or equal to 1"),
        (BASE.replace("requests: 5\n", ""), "key 'requests' is missing"),
        (BASE.replace("mlx-lm", "vllm"), "backends.1"),
        (BASE.replace("tiny-lfm2.5", "tiny-gpt"), "model 'tiny-gpt' is not in lib/models.py"),
        (BASE.replace("[128, 512]", "[128, 128]"), "prompts: lists an entry twice"),
        (BASE.replace("[128, 512]", "[]"), "prompts"),
        (BASE + "flags: {ollama: [-x]}\n", "flags for ollama, which is not among the backends"),
        (BASE + "modelled_power: {idle_w: 1}\n", "unknown key 'modelled_power.idle_w'"),
        ("- a\n- b\n", "a plan is a list of 'key: value' lines"),
        ("a: [1\n", "cannot be read as YAML"),
        (BASE + "name: ../up\n", "cannot be a folder name"),
    ],
)
def test_a_bad_plan_is_one_line_with_file_key_and_problem(tmp_path, text, said):
    with pytest.raises(TinymoeError) as e:
        plan.load(write(tmp_path, text))
    assert said in str(e.value)
    assert "\n" not in str(e.value)


def test_an_unknown_plan_names_the_known_ones():
    with pytest.raises(TinymoeError, match="no plan 'quikc' in runs/plans; there are: .*quick"):
        plan.load("quikc")


def test_the_hash_changes_with_what_decides_a_measurement(tmp_path):
    def hashes(text):
        found = plan.load(write(tmp_path, text))
        return {c.key: found.cell_hash(c) for c in plan.selected(found)}

    before = hashes(BASE)
    assert hashes(BASE + "description: other words\n") == before
    assert hashes(BASE.replace("[128, 512]", "[128, 512, 1024]")).items() >= before.items(), (
        "a longer plan keeps its cells"
    )
    assert not set(hashes(BASE.replace("requests: 5", "requests: 6")).values()) & set(before.values())
    flagged = hashes(BASE + "flags: {mlx-lm: [--x]}\n")
    assert {k for k in before if flagged[k] != before[k]} == {k for k in before if k.startswith("mlx-lm")}
