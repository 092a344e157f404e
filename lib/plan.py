"""Plans: which models, backends and lengths a sweep runs, and how. YAML in runs/plans/, validated before all else."""

from __future__ import annotations

import difflib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lib import models
from lib.files import TinymoeError, digest
from lib.paths import PLANS, relative, safe_name

BackendName = Literal["llama.cpp", "mlx-lm", "ollama", "mlx-vlm"]
Tokens = Annotated[int, Field(ge=1, le=1_000_000)]
# Room for a chat template and the special tokens around a prompt, beside prompt and generation.
TEMPLATE_ROOM_TOKENS = 256


class PlanError(TinymoeError):
    """A plan that does not exist or does not say what to run."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelledPower(_Strict):
    """The stand-in meter's model: power = idle + slope x (CPU seconds of the server per second)."""

    idle_W: Annotated[float, Field(ge=0, le=1000)] = 1.0
    slope_W_per_core: Annotated[float, Field(ge=0, le=1000)] = 4.0


class Skip(_Strict):
    """Cells of the grid that the plan leaves out on purpose: of one model, or of one length if that is given."""

    backend: BackendName
    model: str
    reason: str
    ctx: Tokens | None = None
    gen: Tokens | None = None

    def covers(self, cell: Cell) -> bool:
        """Whether the cell is left out by this entry."""
        return (self.backend, self.model, self.ctx or cell.ctx, self.gen or cell.gen) == (
            cell.backend, cell.model, cell.ctx, cell.gen,
        )  # fmt: skip


class Synthetic(_Strict):
    """A plan that is written from a model of the machine instead of measured. `per_core` adds each core to the log."""

    machine: Literal["mac-mini-m4"]
    per_core: bool = False
    gzip: bool = True


class Plan(_Strict):
    """A validated plan. Every field but `name` comes from the YAML file; lengths are tokens, times carry their unit."""

    name: str = ""
    description: str = ""
    backends: Annotated[list[BackendName], Field(min_length=1)]
    models: Annotated[list[str], Field(min_length=1)]
    prompts: Annotated[list[Tokens], Field(min_length=1)]
    gens: Annotated[list[Tokens], Field(min_length=1)]
    requests: Annotated[int, Field(ge=1, le=100_000)]
    warmup: Annotated[int, Field(ge=0, le=1000)] = 1
    order: Literal["shuffled", "as-listed"] = "shuffled"
    seed: int = 0
    cooldown_s: Annotated[float, Field(ge=0)] = 0.0
    cooldown_within_pct: Annotated[float, Field(gt=0)] = 5.0
    power: Literal["auto", "powermetrics", "modelled", "none"] = "auto"
    power_interval_ms: Annotated[int, Field(ge=10, le=10_000)] = 50
    modelled_power: ModelledPower = ModelledPower()
    load: Literal["httpx", "aiperf"] = "httpx"
    smoke: list[Tokens] = [32, 256, 512]
    request_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    ready_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    flags: dict[BackendName, list[str]] = {}
    free_eos: list[str] = []
    skip: list[Skip] = []
    synthetic: Synthetic | None = None

    @field_validator("synthetic", mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        if value is None:
            raise ValueError("is empty; leave the key out to measure, or write {machine: mac-mini-m4}")
        return value

    @field_validator("backends", "models", "prompts", "gens")
    @classmethod
    def _no_repeats(cls, value: list) -> list:
        if len(set(value)) != len(value):
            raise ValueError("lists an entry twice")
        return value

    @field_validator("models")
    @classmethod
    def _known_models(cls, value: list[str]) -> list[str]:
        for name in value:
            models.get(name)
        return value

    @model_validator(mode="after")
    def _flags_have_a_backend(self) -> Plan:
        for backend in self.flags:
            if backend not in self.backends:
                raise ValueError(f"flags for {backend}, which is not among the backends")
        return self

    @model_validator(mode="after")
    def _free_eos_is_known(self) -> Plan:
        cells = [Cell("mlx-lm", *rest) for rest in itertools.product(self.models, self.prompts, self.gens)]
        for entry in self.free_eos:
            if "mlx-lm" not in self.backends or not any(c.is_within(entry) for c in cells):
                raise ValueError(
                    f"free_eos: {entry!r} is no cell of the plan whose text can end; "
                    "write mlx-lm/<model>/gen<G>/ctx<P>, or the first parts of it"
                )
        return self

    @model_validator(mode="after")
    def _skip_leaves_some_out_and_some_in(self) -> Plan:
        grid = [Cell(*parts) for parts in itertools.product(self.backends, self.models, self.prompts, self.gens)]
        for entry in self.skip:
            if not any(entry.covers(cell) for cell in grid):
                lengths = "".join(f" {name} {n}" for name, n in (("ctx", entry.ctx), ("gen", entry.gen)) if n)
                raise ValueError(f"skip: {entry.backend} {entry.model}{lengths} is no cell of the plan")
        if not self.servers():
            raise ValueError("skip: leaves no cell to run")
        return self

    @property
    def ctx_size(self) -> int:
        """Context that a server needs for every cell of the plan, in tokens, rounded up to 256."""
        longest = max([*self.prompts, *self.smoke]) + max(self.gens) + TEMPLATE_ROOM_TOKENS
        return -(-longest // 256) * 256

    def servers(self, only: str = "") -> list[tuple[str, str]]:
        """(backend, model) pairs in the order they run; `only` keeps those whose backend or model contains it."""
        pairs = [(b, m) for b in self.backends for m in self.models]
        return [(b, m) for b, m in pairs if (only in b or only in m) and self.cells(b, m)]

    def cells(self, backend: str, model: str) -> list[Cell]:
        """The cells of one server in running order: as listed (gen outer, prompt inner) or shuffled by the seed.

        What the plan skips is not among them.
        """
        grid = [Cell(backend, model, ctx, gen) for gen in self.gens for ctx in self.prompts]
        listed = [cell for cell in grid if not any(entry.covers(cell) for entry in self.skip)]
        if self.order == "shuffled":
            random.Random(f"{self.seed}/{backend}/{model}").shuffle(listed)
        return listed

    def cell_hash(self, cell: Cell) -> str:
        """What decides a cell's measurement, as a hash: a cell measured under another one is measured again."""
        fixed = self.model_dump(
            include={"requests", "warmup", "seed", "power", "power_interval_ms", "load", "request_timeout_s"}
        )
        modelled = self.modelled_power.model_dump() if self.power in ("auto", "modelled") else None
        more = [self.flags.get(cell.backend, []), *(["free_eos"] if self.ends_freely(cell) else [])]
        if self.synthetic:
            more.append(self.synthetic.model_dump())
        return digest([cell.key, fixed, modelled, *more])

    def ends_freely(self, cell: Cell) -> bool:
        """Whether the cell's requests may end at the end of the text, before the length asked (as published)."""
        return any(cell.is_within(entry) for entry in self.free_eos)


@dataclass(frozen=True)
class Cell:
    """One combination to measure; `ctx` and `gen` are target token counts."""

    backend: str
    model: str
    ctx: int
    gen: int

    @property
    def key(self) -> str:
        return f"{self.backend}/{self.model}/gen{self.gen}/ctx{self.ctx}"

    def is_within(self, part: str) -> bool:
        """Whether `part` is the cell's key or the first parts of it, such as "mlx-lm/trinity-nano"."""
        return f"{self.key}/".startswith(f"{part}/")

    def __str__(self) -> str:
        return f"{self.backend} {self.model} ctx {self.ctx} gen {self.gen}"


def load(plan: str, instead: dict | None = None) -> Plan:
    """The plan called `plan` in runs/plans/, or the one in the YAML file at that path.

    `instead` has values that take the place of the plan's own; None in it changes nothing. Raises PlanError with the
    file, the key and what is wrong with it; unknown keys are refused by name.
    """
    path = _find(plan)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as e:
        raise PlanError(f"{relative(path)}: cannot be read as YAML: {' '.join(str(e).split())}") from e
    if not isinstance(raw, dict):
        raise PlanError(f"{relative(path)}: a plan is a list of 'key: value' lines; see runs/plans/quick.yaml")
    raw |= {key: value for key, value in (instead or {}).items() if value is not None}
    raw.setdefault("name", path.stem)
    safe_name(str(raw["name"]), "plan name")
    return _validated(path, raw)


def _validated(path: Path, raw: dict) -> Plan:
    try:
        return Plan.model_validate(raw)
    except ValidationError as e:
        problems = "; ".join(_problem(error) for error in e.errors())
        raise PlanError(f"{relative(path)}: {problems}") from e
    except TinymoeError as e:
        raise PlanError(f"{relative(path)}: models: {e}") from e


def _find(plan: str) -> Path:
    if plan.endswith((".yaml", ".yml")):
        path = Path(plan)
        if path.is_file():
            return path
        raise PlanError(f"no plan file {plan}")
    path = PLANS / f"{safe_name(plan, 'PLAN')}.yaml"
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in PLANS.glob("*.yaml")))
    raise PlanError(f"no plan {plan!r} in {relative(PLANS)}; there are: {known}")


def _problem(error: dict) -> str:
    place = ".".join(str(part) for part in error["loc"]) or "plan"
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(error["loc"][-1]), Plan.model_fields, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"unknown key {place!r}{hint}"
    if error["type"] == "missing":
        return f"key {place!r} is missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}, got {error['input']!r}" if place != "plan" else message


def selected(plan: Plan, only: str = "") -> Iterator[Cell]:
    """Every cell of the plan that `only` keeps, server by server, in running order. PlanError if none is left."""
    servers = plan.servers(only)
    if not servers:
        raise PlanError(
            f"ONLY={only} matches no backend or model of plan {plan.name}; "
            f"backends: {', '.join(plan.backends)}; models: {', '.join(plan.models)}"
        )
    for backend, model in servers:
        yield from plan.cells(backend, model)
