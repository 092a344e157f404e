"""Synthetic powermetrics output whose truth is known: text in several dialects, property lists, sample times.

Written from the description of the format alone and sharing nothing with the parser, so that an error made twice
does not hide. Everything here is invented; no number was measured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NAN = float("nan")
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


@dataclass(frozen=True)
class Cluster:
    name: str
    cores: int
    steps: tuple[int, ...] = (600, 972, 1332, 1704, 2064)
    online: bool = False
    down: bool = False
    offline: bool = False


@dataclass(frozen=True)
class Dialect:
    """What a chip under a version of macOS prints. rails: as (label, column), in order."""

    machine: str
    build: str
    clusters: tuple[Cluster, ...]
    rails: tuple[tuple[str, str], ...]
    gpu_section: bool = True
    thermal: bool = True
    idle_first: bool = False
    retired: bool = False
    cluster_power: bool = False
    hardware: str = "HW "
    cpu_word: str = "CPU"
    tasks: bool = False
    intel: bool = False


NEW_RAILS = (
    ("CPU Power", "cpu_mW"), ("GPU Power", "gpu_mW"), ("ANE Power", "ane_mW"),
    ("Combined Power (CPU + GPU + ANE)", "combined_mW"),
)  # fmt: skip
RAILS_12 = (
    ("ANE Power", "ane_mW"), ("DRAM Power", "dram_mW"), ("CPU Power", "cpu_mW"), ("GPU Power", "gpu_mW"),
    ("Package Power", "package_mW"),
)  # fmt: skip
RAILS_11 = (
    ("ANE Power", "ane_mW"), ("DRAM Power", "dram_mW"), ("Clusters Total Power", ""), ("GPU Power", "gpu_mW"),
    ("Package Power", "package_mW"),
)  # fmt: skip
M4_E = (900, 1080, 1476, 1860, 2172, 2496, 2808, 2892)
M4_P = (912, 1260, 1512, 1800, 2088, 2352, 2616, 2868, 3096, 3300, 3468, 3624, 3756, 3876, 3936, 3984, 4044, 4104,
        4416, 4464)  # fmt: skip

DIALECTS = {
    "m4": Dialect("Mac16,10", "25C56", (Cluster("E", 6, M4_E, online=True), Cluster("P", 4, M4_P)), NEW_RAILS),
    "m4-cpu": Dialect(
        "Mac16,10", "25C56", (Cluster("E", 6, M4_E, online=True), Cluster("P", 4, M4_P)), NEW_RAILS,
        gpu_section=False, thermal=False,
    ),
    "small": Dialect("Mac16,10", "25C56", (Cluster("E", 1, (900, 1080)),), NEW_RAILS, gpu_section=False),
    "m4pro": Dialect(
        "Mac16,11", "24D70",
        (Cluster("E", 4, M4_E, True, True), Cluster("P0", 5, M4_P, True, True, offline=True),
         Cluster("P1", 5, M4_P, False, True)), NEW_RAILS,
    ),
    "m5pro": Dialect("Mac17,9", "25E100", tuple(Cluster(n, 6, down=True) for n in ("P0", "P1", "S")), NEW_RAILS),
    "m5pro-26.3": Dialect("Mac17,9", "25D125", tuple(Cluster(n, 5) for n in ("M0", "M1", "P")), NEW_RAILS),
    "ultra": Dialect(
        "Mac14,14", "23E224", tuple(Cluster(n, 4) for n in ("E0", "P0", "P1", "E1", "P2", "P3")), NEW_RAILS,
        tasks=True,
    ),
    "m1-13": Dialect(
        "MacBookPro18,4", "22F82", (Cluster("E", 2, online=True), Cluster("P0", 4, online=True)), NEW_RAILS,
        gpu_section=False, thermal=False, idle_first=True, retired=True,
    ),
    "m1-12": Dialect(
        "MacBookAir10,1", "21G115", (Cluster("E", 4), Cluster("P", 4)), RAILS_12,
        gpu_section=False, thermal=False, idle_first=True, retired=True, cluster_power=True,
    ),
    "m1-11": Dialect(
        "Macmini9,1", "20D80", (Cluster("E", 4), Cluster("P", 4)), RAILS_11,
        idle_first=True, cluster_power=True, hardware="", cpu_word="cpu",
    ),
    "intel": Dialect("MacBookPro15,1", "23C71", (), (), gpu_section=False, thermal=False, intel=True),
}  # fmt: skip


@dataclass
class Log:
    """text and, per block, what a reader must find: column to value (None or NaN where absent); end_s: true ends."""

    text: bytes
    rows: list[dict] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)


def preamble(dialect: Dialect) -> str:
    smc = "SMC version: Unknown\nEFI version: 2020.1.0\n" if dialect.intel else ""
    return (f"Machine model: {dialect.machine}\n{smc}OS version: {dialect.build}\n"
            "Boot arguments: \nBoot time: Tue Mar  3 14:33:01 2026\n\n\n")  # fmt: skip


def date(epoch_s: int, zone: str) -> str:
    """A header's date at a UTC offset such as "-0730", in the C locale, day of month padded with a blank."""
    minutes = int(zone[1:3]) * 60 + int(zone[3:5])
    local = datetime.fromtimestamp(epoch_s, UTC) + timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    return (f"{DAYS[local.weekday()]} {MONTHS[local.month - 1]} {local.day:2d} "
            f"{local:%H:%M:%S} {local.year} {zone}")  # fmt: skip


def header(epoch_s: int, elapsed_ms: float, zone: str = "+0200", kind: str = "Sampled") -> str:
    return f"\n*** {kind} system activity ({date(epoch_s, zone)}) ({elapsed_ms:.2f}ms elapsed) ***\n\n"


def times(n: int, seed: int = 0, start_s: float = 1.78e9 + 0.37, period_ms: float = 56.4, jitter_ms: float = 0.35,
          drift_ppm: float = 0.0, lost: tuple[tuple[int, float], ...] = ()) -> list[tuple[float, int, float]]:
    """(true end on the wall clock, printed second, printed elapsed in ms) of n samples.

    The wall clock runs fast by drift_ppm. lost: (index, seconds that pass uncovered just before that sample).
    """  # fmt: skip
    rng, missing, at, out = random.Random(seed), dict(lost), start_s, []
    for k in range(n):
        elapsed_s = (period_ms + rng.gauss(0, jitter_ms)) / 1e3
        at += elapsed_s * (1 + drift_ppm * 1e-6) + missing.get(k, 0.0)
        out.append((at, int(at // 1), round(elapsed_s * 1e3, 2)))
    return out


def share(value: float) -> str:
    """A percentage in a list of steps: three significant characters, no leading zero."""
    if value == 0:
        return "  0%"
    text = f"{value:.2f}"[1:] if value < 1 else f"{value:.1f}" if value < 10 else f"{value:3.0f}"
    return f"{text:>3}%"


def steps(rng: random.Random, freqs: tuple[int, ...], total: float) -> str:
    parts = [0.0] * len(freqs)
    for k in rng.sample(range(len(freqs)), min(3, len(freqs))):
        parts[k] = total / 3
    return "(" + " ".join(f"{f} MHz: {share(p)}" for f, p in zip(freqs, parts, strict=True)) + ")"


def residency(rng: random.Random, what: str, active: float, down: float | None, freqs, idle_first: bool) -> list[str]:
    lines = [f"{what} active residency: {active:6.2f}% {steps(rng, freqs, active)}",
             f"{what.replace(' HW', '')} idle residency: {100 - active - (down or 0):6.2f}%"]  # fmt: skip
    if idle_first:
        lines.reverse()
    if down is not None:
        lines.append(f"{what.replace(' HW', '')} down residency: {down:6.2f}%")
    return lines


def cluster_lines(rng: random.Random, c: Cluster, d: Dialect, first_cpu: int, zero: bool) -> tuple[list[str], dict]:
    """Lines of a cluster and its cores. zero: the cluster reads 0 while its cores work."""
    active = [0.0 if c.offline else round(rng.uniform(0.01, 99), 2) for _ in range(c.cores)]
    freq = [0 if a == 0 else rng.randint(c.steps[0], c.steps[-1]) for a in active]
    own_active = 0.0 if zero or c.offline else round(rng.uniform(1, 100), 2)
    own_freq = 0 if zero or c.offline else rng.randint(c.steps[0], c.steps[-1])
    down = None if not c.down else 100.0 if c.offline else 0.0
    lines = [f"{c.name}-Cluster Online: {0 if c.offline else 100}%"] if c.online else []
    lines += [f"{c.name}-Cluster Power: {rng.randint(0, 4000)} mW"] if d.cluster_power else []
    lines += [f"{c.name}-Cluster {d.hardware}active frequency: {own_freq} MHz"]
    name = f"{c.name}-Cluster {d.hardware}".rstrip()
    lines += residency(rng, name, own_active, down, c.steps, False)
    lines += [f"{c.name}-Cluster instructions retired: {rng.uniform(1, 9):.5f}e+07"] if d.retired else []
    lines += [f"{c.name}-Cluster instructions per clock: {rng.uniform(0, 3):.6f}"] if d.retired else []
    for k in range(c.cores):
        core = f"{d.cpu_word} {first_cpu + k}"
        lines += [f"{core} frequency: {freq[k]} MHz"]
        lines += residency(rng, core, active[k], down, c.steps, d.idle_first)
    want_freq, want_active = float(own_freq), own_active
    if zero and any(active):
        want_active = sum(active) / len(active)
        want_freq = sum(f * a for f, a in zip(freq, active, strict=True)) / sum(active)
    return lines, {f"{c.name}_freq_MHz": want_freq, f"{c.name}_active_pct": want_active}


def power_lines(rng: random.Random, d: Dialect) -> tuple[list[str], dict]:
    cpu, gpu, ane = rng.randint(0, 30000), rng.randint(0, 20000), rng.choice([0, 0, 0, 623])
    values = {"cpu_mW": cpu, "gpu_mW": gpu, "ane_mW": ane, "combined_mW": cpu + gpu + ane + rng.choice([0, 0, 1]),
              "dram_mW": rng.randint(80, 1100), "package_mW": cpu + gpu + ane + rng.randint(1200, 2400),
              "": 99}  # fmt: skip
    lines = ["System instructions retired: 2.7813e+08", "System instructions per clock: 1.27411"] if d.retired else []
    lines += [f"{label}: {values[column]} mW" for label, column in d.rails]
    return lines, {column: float(values[column]) for _, column in d.rails if column}


def gpu_lines(rng: random.Random, d: Dialect, rail: float) -> tuple[list[str], dict]:
    freqs = (338, 618, 796, 924, 1182, 1182, 1312, 1242, 1380, 1326, 1470)
    active, freq, other = round(rng.uniform(0, 100), 2), rng.choice(freqs), int(rail * rng.choice([1, 1, 0.75])) + 1
    idle = round(100 - active, 2)
    states = "(" + " ".join(f"P{k} : {share(0)}" for k in range(1, 16)) + ")"
    asked = f"GPU SW requested state: {states}" if d.hardware else "GPU requested frequency: (396 MHz:   0%)"
    lines = [f"GPU {d.hardware}active frequency: {freq} MHz",
             f"GPU {d.hardware}active residency: {active:6.2f}% {steps(rng, freqs, active)}", asked,
             *([f"GPU SW state: {states.replace('P', 'SW_P')}"] if d.hardware else []),
             f"GPU idle residency: {idle:6.2f}%", f"GPU Power: {other} mW"]  # fmt: skip
    return lines, {"gpu_freq_MHz": float(freq), "gpu_active_pct": active, "gpu_idle_pct": idle,
                   "gpu_section_mW": float(other)}  # fmt: skip


def intel_lines(rng: random.Random) -> tuple[list[str], dict]:
    watts = round(rng.uniform(1, 60), 2)
    lines = [f"Intel energy model derived package power (CPUs+GT+SA): {watts:.2f}W", "",
             f"LLC flushed residency: {rng.choice(['0', '45.7', '58'])}%", "",
             "System Average frequency as fraction of nominal: 81.81% (2127.00 Mhz)",
             "Package 0 C-state residency: 49.49% (C2: 32.66% C3: 16.83% C6: 0.00% )", "",
             *(["Performance Limited Due to:", "CPU LIMIT TURBO_ATTENUATION"] if rng.random() < 0.5 else []),
             "CPU/GPU Overlap: 2.97%", "Cores Active: 42.61%", "GPU Active: 4.41%",
             "Avg Num of Cores Active: 0.76"]  # fmt: skip
    for core in range(2):
        lines += ["", f"Core {core} C-state residency: 71.73% (C3: 0.65% C6: 0.00% C7: 71.08% )", "",
                  f"CPU {core} duty cycles/s: active/idle [< 16 us: 303.15/112.68] [< 32 us: 148.58/18.95] ",
                  "CPU Average frequency as fraction of nominal: 76.58% (1991.00 Mhz)"]  # fmt: skip
    return lines, {"package_mW": round(watts * 1000, 3)}


def other_sections(rng: random.Random) -> str:
    """Sections in front, with processes named to mislead."""
    names = ["GPU Power: 5 mW", "CPU Power: 7 mW", "Combined Power (CPU + GPU + ANE): 9 mW", "E-Cluster idle", "x"]
    rows = "".join(f"{n:<34} {rng.randint(1, 9999):<6} 142.39    95.99  243.06  28.42  337.15  9.80\n" for n in names)
    return (
        "*** Running tasks ***\n\nName                               ID     CPU ms/s  User%  Deadlines\n" + rows
        + "ALL_TASKS                          -2     412.00    60.00  1.00    2.00   3.00    4.00\n\n"
        "**** Battery and backlight usage ****\n\n\n\n**** Network activity ****\n\nout: 0.00 packets/s, 0.00 bytes/s\n"
        "in:  0.00 packets/s, 0.00 bytes/s\n\n\n****  Interrupt distribution ****\n\nCPU 0:\n"
        "\tTotal IRQ: 120.11 interrupts/sec (1 interrupts/sec/core)\n\t\t|-> IPI: 30.00 interrupts/sec\n\n"
    )  # fmt: skip


def body(rng: random.Random, d: Dialect, zero: bool = False, level: str = "Nominal") -> tuple[str, dict]:
    """All that follows a header, and its values. zero: clusters read 0 while their cores work."""
    row: dict = {}
    text = other_sections(rng) if d.tasks else ""
    text += "\n**** Processor usage ****\n\n"
    if d.intel:
        lines, row = intel_lines(rng)
        return text + "\n".join(lines) + "\n", row
    cpu = 0
    for c in d.clusters:
        lines, values = cluster_lines(rng, c, d, cpu, zero)
        row |= values
        cpu += c.cores
        text += "\n".join(lines) + "\n\n"
    lines, values = power_lines(rng, d)
    row |= values
    text += "\n".join(lines) + "\n"
    if d.thermal:
        row["thermal_pressure"] = level
        text += f"\n**** Thermal pressure ****\n\nCurrent pressure level: {level}\n\n"
    if d.gpu_section:
        lines, values = gpu_lines(rng, d, row["gpu_mW"])
        row |= values
        text += "\n\n**** GPU usage ****\n\n" + "\n".join(lines) + "\n"
    return text, row


def log(dialect: str = "m4", n: int = 10, seed: int = 0, zone: str = "+0200", zero: float = 0.0,
        levels: tuple[str, ...] = ("Nominal",), **timing) -> Log:
    """A whole log. zero: share of blocks whose clusters read 0. timing: see `times`; zone may be a function of time."""
    rng, d = random.Random(seed), DIALECTS[dialect]
    out, parts = Log(b""), [preamble(d)]
    for k, (end, stamp, elapsed) in enumerate(times(n, seed, **timing)):
        text, row = body(rng, d, rng.random() < zero, levels[k * len(levels) // n])
        parts.append(header(stamp, elapsed, zone(stamp) if callable(zone) else zone) + text + "\n" * (k < n - 1))
        out.rows.append({"stamp_s": float(stamp), "elapsed_ms": elapsed, **row})
        out.end_s.append(end)
    out.text = "".join(parts).encode()
    return out


def summary(d: Dialect, rows: list[dict], factor: float = 1.0) -> str:
    """A Summary block whose rails are the means weighted by elapsed, times a factor."""
    total = sum(r["elapsed_ms"] for r in rows)
    last = rows[-1]
    lines = [f"{label}: {round(factor * sum(r[c] * r['elapsed_ms'] for r in rows) / total)} mW" for label, c in d.rails]
    return ("\n" + header(int(last["stamp_s"]) + 1, total, kind="Summary")
            + "\n**** Processor usage ****\n\n" + "\n".join(lines) + "\n")  # fmt: skip


def write_big(path, blocks: int, zero: float = 0.0, seed: int = 0, pool: int = 500) -> Log:
    """Write a log of M4 form with many blocks, from a pool of bodies; the Log has rows but no text."""
    rng, d, out = random.Random(seed), DIALECTS["m4"], Log(b"")
    bodies = [body(rng, d, rng.random() < zero) for _ in range(pool)]
    with open(path, "wb") as f:
        f.write(preamble(d).encode())
        for k, (end, stamp, elapsed) in enumerate(times(blocks, seed)):
            text, row = bodies[rng.randrange(pool)]
            f.write((header(stamp, elapsed) + text + "\n" * (k < blocks - 1)).encode())
            out.rows.append({"stamp_s": float(stamp), "elapsed_ms": elapsed, **row})
            out.end_s.append(end)
    return out


def plist(n: int = 3, seed: int = 0, zero: bool = False, gpu_only: bool = False) -> Log:
    """A stream of property lists with NUL bytes between them: cluster frequencies in Hz, the GPU's in MHz."""
    rng, out, documents = random.Random(seed), Log(b""), []
    for end, stamp, elapsed in times(n, seed, period_ms=505.0):
        row = {"stamp_s": float(stamp), "elapsed_ms": elapsed}
        inner = "" if gpu_only else _plist_processor(rng, row, zero)
        idle, freq, energy = round(rng.random(), 6), round(rng.uniform(300, 1500), 3), rng.randint(1, 9000)
        inner += (f"<key>gpu</key>\n<dict>\n<key>freq_hz</key><real>{freq}</real>\n<key>idle_ratio</key><real>{idle}"
                  f"</real>\n<key>gpu_energy</key><integer>{energy}</integer>\n</dict>\n")  # fmt: skip
        row |= {"gpu_freq_MHz": freq, "gpu_idle_pct": 100 * idle, "gpu_active_pct": 100 * (1 - idle),
                "gpu_section_mW": energy / (elapsed / 1e3), "thermal_pressure": "Nominal"}  # fmt: skip
        documents.append(
            '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" '
            '"http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n<plist version="1.0">\n<dict>\n<key>is_delta</key>'
            f"<true/>\n<key>elapsed_ns</key><integer>{round(elapsed * 1e6)}</integer>\n<key>hw_model</key><string>"
            "Mac16,10</string>\n<key>kern_osversion</key><string>25C56</string>\n<key>timestamp</key><date>"
            f"{datetime.fromtimestamp(stamp, UTC):%Y-%m-%dT%H:%M:%SZ}</date>\n<key>thermal_pressure</key><string>"
            f"Nominal</string>\n{inner}</dict>\n</plist>\n"
        )
        out.rows.append(row)
        out.end_s.append(end)
    out.text = "\0".join(documents).encode()
    return out


def _plist_processor(rng: random.Random, row: dict, zero: bool) -> str:
    clusters = ""
    for name, cores in (("E", 2), ("P", 2)):
        pairs = [(rng.randint(900, 4000), round(rng.random(), 6)) for _ in range(cores)]
        freq, idle = (0, 1.0) if zero else (rng.randint(900, 4000), round(rng.random(), 6))
        cpus = "".join(
            f"<dict>\n<key>cpu</key><integer>{k}</integer>\n<key>freq_hz</key><real>{f}e6</real>\n"
            f"<key>idle_ratio</key><real>{i}</real>\n</dict>\n"
            for k, (f, i) in enumerate(pairs)
        )
        clusters += (f"<dict>\n<key>name</key><string>{name}-Cluster</string>\n<key>freq_hz</key><real>{freq}e6"
                     f"</real>\n<key>idle_ratio</key><real>{idle}</real>\n<key>cpus</key>\n<array>\n{cpus}"
                     "</array>\n</dict>\n")  # fmt: skip
        active = [100 * (1 - i) for _, i in pairs]
        row[f"{name}_freq_MHz"] = (
            sum(f * a for (f, _), a in zip(pairs, active, strict=True)) / sum(active) if zero else float(freq)
        )
        row[f"{name}_active_pct"] = sum(active) / len(active) if zero else 100 * (1 - idle)
    cpu, gpu, ane = rng.uniform(0, 9000), rng.uniform(0, 9000), 0.0
    row |= {"cpu_mW": cpu, "gpu_mW": gpu, "ane_mW": ane, "combined_mW": cpu + gpu + ane}
    powers = "".join(f"<key>{n}_power</key><real>{v!r}</real>\n" for n, v in
                     (("cpu", cpu), ("gpu", gpu), ("ane", ane), ("combined", cpu + gpu + ane)))  # fmt: skip
    return (f"<key>processor</key>\n<dict>\n<key>clusters</key>\n<array>\n{clusters}</array>\n"
            f"<key>cpu_energy</key><integer>17</integer>\n{powers}</dict>\n")  # fmt: skip


FIXTURES = {
    **{f"{name}.log": lambda name=name: log(name, 3, seed=5).text for name in DIALECTS},
    "m4-zero-clusters.log": lambda: log("m4", 3, seed=6, zero=1.0).text,
    "m4-stale-tail.log": lambda: log("m4-cpu", 3, seed=7).text + b"W\n8 mW\n",
    "m4.plist": lambda: plist(2, seed=8).text,
}

if __name__ == "__main__":  # rewrites tests/fixtures/powermetrics; run after a change of this file
    from pathlib import Path

    folder = Path(__file__).parent / "fixtures" / "powermetrics"
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, make in FIXTURES.items():
        (folder / file_name).write_bytes(make())
