"""``commcalc check``: right values and margins, right lines, right statuses; what cannot break is an error.

Sources: NVIDIA Megatron, arXiv:2205.05198 (a block under TP and SP: four ReduceScatters and four AllGathers of b*s*h
elements, and two AllGathers again in the backward pass); user report UR-114 (collectives counted in CI: 296, then 196,
and a counter that read zero); actions/toolkit, packages/core/src/command.ts (escaping); XML 1.0.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from commcalc.accounting.budget import WARNINGS
from commcalc.accounting.quantities import bound_of, quantity_of
from commcalc.document import Leaf, scalar
from commcalc.errors import UnitError
from conftest import DATA, ROOT, Inside, Ran, run_commcalc

GPT = "{model: gpt3-175b, hardware: h100, parallelism: {tp: 8}}"
# Bytes of T x D in bf16: 2048 tokens of 12288.
STREAM = 2 * 2048 * 12288


@pytest.fixture
def check(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``check(limits, *options, job=...)`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_check(limits: str, *options: str, job: str = GPT) -> Ran:
        (tmp_path / "b.yaml").write_text(f"job: {job}\nlimits:\n{limits}")
        return inside("check", "b.yaml", *options)

    return run_check


def only(ran: Ran) -> dict[str, Any]:
    (limit,) = ran.json["limits"]
    return dict(limit)


# Values


def test_the_fields_of_the_contract_with_values_by_hand(check: Any) -> None:
    ran = check("  totals.block.tp.wire_bytes: {max: 400 MB}\n", "--json")
    assert (ran.status, ran.json["schema"], ran.json["passed"]) == (0, "commcalc/check/1", True)
    limit = only(ran)
    wire = 4 * STREAM * 2 * 7 // 8
    assert {key: limit[key] for key in ("job", "field", "value", "min", "max", "passed")} == {
        "job": "gpt3-175b", "field": "totals.block.tp.wire_bytes", "value": wire, "min": None, "max": 400_000_000,
        "passed": True,
    }  # fmt: skip
    assert limit["headroom"] == 400_000_000 - wire
    assert limit["margin"] == pytest.approx((400_000_000 - wire) / 400_000_000)


def test_sequence_parallel_wire_bytes_are_ten_gathers_or_scatters(check: Any) -> None:
    wire = 10 * STREAM * 7 // 8
    job = GPT.replace("tp: 8", "tp: 8, sp: true")
    assert check(f"  totals.block.tp.wire_bytes: {{min: {wire}, max: {wire} B}}\n", job=job).status == 0
    ran = check(f"  totals.block.tp.wire_bytes: {{max: {wire - 1}}}\n", "--json", job=job)
    assert (ran.status, only(ran)["passed"], only(ran)["headroom"]) == (1, False, -1)
    assert only(ran)["margin"] == pytest.approx(-1 / (wire - 1))


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("block.exposed_share: {max: 0.25}", 1),  # 1.049 of 3.954 ms
        ("block.exposed_share: {max: 27%}", 0),
        ("levels.tp: {only: [nvlink]}", 0),
        ("levels.tp: {only: nvlink}", 0),
        ("levels.tp: {none: [nvlink]}", 1),
        ("warnings: {none: [tp-crosses-level]}", 0),
        ("warnings: {none: [does-not-fit]}", 1),
        ("warnings: {only: []}", 1),
        ("warnings: {only: [does-not-fit]}", 0),
        ("memory.total_bytes: {max: 80 GB}", 1),
        ("memory.fits: {only: [true]}", 1),
        ("memory.margin_bytes: {min: 0 B}", 1),
        ("memory.margin_bytes: {min: -400 GB}", 0),
        ("crossing_bytes.tp: {max: 0}", 0),
        ("totals.block.tp.time_s: {max: 1100 us, min: 1ms}", 0),
        ("totals.block.tp.time_s: {max: 0.0011}", 0),
        ("totals.block.tp.count: {max: 4, min: 4}", 0),
        ("totals.block.tp.count: {max: 3}", 1),
        ("collectives.tp: {only: [all_reduce]}", 0),
        ("collectives.tp: {none: [all_reduce]}", 1),
        ("calls.step.tp.all_reduce: {max: 389, min: 389}", 0),
        ("inputs.hardware.network.nvlink.bandwidth_bytes_per_s: {min: 450 GB/s}", 0),
        ("inputs.hardware.chip.flops.bf16: {max: 980 TFLOP/s}", 1),
        ("inputs.parallelism.layout: {only: [megatron]}", 0),
        ("step.mfu: {min: 0.3}", 0),
        ("step.tokens_per_s: {min: 1e3}", 0),
        ("rows.0.group_size: {max: 8}", 0),
        ("stages.0.layers: {max: 96}", 0),
        ("totals.block.cp.wire_bytes: {max: 0}", 0),  # of one rank
    ],
)
def test_each_kind_of_field(limit: str, status: int, check: Any) -> None:
    assert check(f"  {limit}\n").status == status


def test_a_row_of_compare_and_the_ledger_agree_where_both_have_a_field(check: Any, inside: Inside) -> None:
    row = inside("compare", "--model", "gpt3-175b", "--hardware", "h100", "--tp", "8", "--json").json["rows"][0]
    limits = "".join(
        f"  {path}: {{min: 0}}\n" for path in ("block.wire_bytes", "step.comm_s", "memory.total_bytes", "block.share")
    )
    found = {limit["field"]: limit["value"] for limit in check(limits, "--json").json["limits"]}
    assert found == {
        "block.wire_bytes": row["block"]["wire_bytes"], "step.comm_s": row["step"]["comm_s"],
        "memory.total_bytes": row["memory"]["total_bytes"], "block.share": row["block"]["share"],
    }  # fmt: skip


# Measured values


def test_a_count_budget_as_projects_keep_it(check: Any) -> None:
    """UR-114: 296 breaks a budget of 196, 196 keeps it, and zero at tp above 1 is an error."""
    (report,) = [
        one
        for one in yaml.safe_load((DATA / "user_reports_budgets.yaml").read_text())["entries"]
        if one["id"] == "UR-114"
    ]
    limits = f"  totals.step.tp.count: {{max: {report['inputs']['limit']}}}\n"
    statuses = {n: check(limits, "--measured", f"totals.step.tp.count={n}") for n in (296, 196, 0)}
    assert {n: ran.status for n, ran in statuses.items()} == {296: report["expect"]["at_296"], 196: 0, 0: 2}
    assert "the measured totals.step.tp.count is 0 although tp is 8: nothing was counted" in statuses[0].err
    assert "measured 296" in statuses[296].out


def test_measured_beside_predicted(check: Any) -> None:
    """389 calls a step are predicted: 4 for each of 96 layers, and 5 of embedding, head and loss."""
    within = check("  totals.step.tp.count: {measured: 400, tolerance: 5%}\n", "--json")
    assert (within.status, only(within)["predicted"], only(within)["value"]) == (0, 389, 400)
    assert only(within)["max"] == pytest.approx(389 * 1.05)
    assert check("  totals.step.tp.count: {measured: 410, tolerance: 5%}\n").status == 1
    assert check("  totals.step.tp.count: {measured: 368, tolerance: 5%}\n").status == 1
    assert check("  totals.step.tp.count: {measured: 368, tolerance: 0.06}\n").status == 0
    assert check("  totals.step.tp.count: {tolerance: 5%}\n", "--measured", "totals.step.tp.count=400").status == 0


# Several jobs, and files


def test_several_jobs_by_name_and_files_beside_the_budget(check: Any, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "small.yaml").write_text("model: m.yaml\nhardware: h100\nparallelism: {tp: 4}\n")
    (tmp_path / "ci" / "mine.yaml").write_text("extends: llama-3-8b\n")
    text = """\
jobs:
  base: {extends: small.yaml, model: llama-3-8b}
  mine: {model: mine.yaml, hardware: h100, parallelism: {tp: 4}}
  preset: gpt3-175b-a100
limits:
  levels.tp: {only: [nvlink]}
"""
    (tmp_path / "ci" / "budget.yaml").write_text(text)
    ran = inside("check", "ci/budget.yaml", "--json")
    assert ran.status == 0, ran.out
    assert [limit["job"] for limit in ran.json["limits"]] == ["base", "mine", "preset"]
    (tmp_path / "ci" / "budget.yaml").write_text(
        "jobs: [llama-3-70b-h100, gpt3-175b-a100]\nlimits: {step.mfu: {min: 0}}"
    )
    table = inside("check", "ci/budget.yaml").out
    assert "llama-3-70b-h100" in table
    assert "2 limits, none broken" in table


def test_from_stdin_and_set(tmp_path: Path) -> None:
    text = f"job: {GPT}\nlimits: {{levels.tp: {{only: [nvlink]}}}}\n"
    assert run_commcalc("check", "-", stdin=text, cwd=tmp_path).status == 0
    ran = run_commcalc("check", "-", "--set", "parallelism.tp=16", "--format", "github", stdin=text, cwd=tmp_path)
    assert ran.status == 1
    assert "::error line=2,col=22,title=commcalc check::gpt3-175b: levels.tp: infiniband is not among" in ran.out


# Formats


def test_annotations_stand_on_the_line_that_broke_and_are_escaped(check: Any, inside: Inside, tmp_path: Path) -> None:
    limits = "  levels.tp:\n    only: [nvlink]\n  block.exposed_share:\n    min: 0\n    max: 25%\n"
    ran = check(limits, "--format", "github", "--set", "parallelism.tp=16")
    found = re.findall(r"^::error (.*?)::(.*)$", ran.out, re.MULTILINE)
    assert [place for place, _ in found] == [
        "file=b.yaml,line=4,col=5,title=commcalc check",
        "file=b.yaml,line=7,col=5,title=commcalc check",
    ]
    assert found[1][1].startswith("gpt3-175b: block.exposed_share: 50.26 %25 is above 25 %25 by")
    odd = "a,b%c:d.yaml"
    (tmp_path / odd).write_text(f'jobs: {{"x\\n::error::y": {GPT}}}\nlimits: {{step.mfu: {{max: 1%}}}}\n')
    ran = inside("check", odd, "--format", "github")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("::")]
    assert line.startswith(
        "::error file=a%2Cb%25c%3Ad.yaml,line=2,col=21,title=commcalc check::x%0A::error::y: step.mfu"
    )


def test_an_alias_is_marked_where_it_is_used(check: Any) -> None:
    limits = "  block.exposed_share: &few {max: 1%}\n  step.mfu: *few\n"
    assert re.findall(r"line=(\d+)", check(limits, "--format", "github").out) == ["3", "4"]


def test_junit_is_xml_with_a_case_for_each_limit(check: Any, inside: Inside, tmp_path: Path) -> None:
    limits = "  levels.tp: {only: [nvlink]}\n  block.exposed_share: {max: 25%}\n"
    jobs = f'{{"<&\\">\\u0001\\uFFFF": {GPT}}}'
    (tmp_path / "b.yaml").write_text(f"jobs: {jobs}\nlimits:\n{limits}")
    ran = inside("check", "b.yaml", "--format", "junit")
    assert ran.status == 1
    root = ET.fromstring(ran.out)
    (suite,) = root
    assert (root.tag, suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("testsuites", "2", "1", "0")
    assert suite.get("name") == '<&">\\x01?'
    cases = {case.get("name"): case.find("failure") for case in suite}
    assert cases["levels.tp"] is None
    failure = cases["block.exposed_share"]
    assert failure is not None
    assert "is above 25 %" in str(failure.get("message"))


def test_junit_and_github_tell_errors_too(check: Any) -> None:
    limits = "  blck.exposed_share: {max: 25%}\n"
    ran = check(limits, "--format", "junit")
    (suite,) = ET.fromstring(ran.out)
    assert (ran.status, suite.get("errors")) == (2, "1")
    assert suite[0][0].tag == "error"
    ran = check(limits, "--format", "github")
    assert (ran.status, ran.out.startswith("::error file=b.yaml,line=3,col=3,")) == (2, True)
    assert ran.err.startswith("error: unknown field")


def test_markdown_csv_and_lines(check: Any) -> None:
    limits = "  levels.tp: {only: [nvlink]}\n  block.exposed_share: {max: 25%}\n"
    assert "| NO | block.exposed_share |" in check(limits, "--format", "markdown").out
    records = list(csv.DictReader(io.StringIO(check(limits, "--format", "csv").out)))
    assert [record["passed"] for record in records] == ["true", "false"]
    lines = check(limits, "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["passed"] for line in lines] == [True, False]
    assert check(limits, "--format", "xml").status == 2


# Errors: what, where, status

BAD_LIMITS = [
    # the limit, a piece of the message, its place
    ("totals.block.tp.wire_byte: {max: 1 GB}", "unknown field 'totals.block.tp.wire_byte'", "3:3 limits.totals"),
    ("totals.block.tp.wire_byte: {max: 1 GB}", "did you mean totals.block.tp.wire_bytes", ""),
    ("totals.block.tp: {max: 1 GB}", "totals.block.tp is no single value", "3:3"),
    ("rows: {max: 1}", "rows is no single value", "3:3"),
    ("rows.99.time_s: {max: 1 s}", "unknown field 'rows.99.time_s'", "3:3"),
    ("memory.total_bytes: {max: 10 GB, min: 20 GB}", "min 20,000,000,000 B is above max 10,000,000,000 B", "3:36"),
    ("memory.total_bytes: {max: 2 s}", "unknown unit 's' in '2 s': the field is in bytes", "3:24"),
    ("step.time_s: {max: 2 GB}", "unknown unit 'GB' in '2 GB': the field is in seconds", "3:17"),
    ("step.mfu: {min: 40}", "'40' is above 1 and has no %", "3:14"),
    ("step.mfu: {min: 400%}", "'400%' is above 100%", "3:14"),
    ("step.mfu: {min: 1 ms}", "'1 ms' is no share", "3:14"),
    ("totals.step.tp.count: {max: 1.5}", "'1.5' is no whole number: the field is a count", "3:26"),
    ("totals.step.tp.count: {max: 5 GB}", "'5 GB' is no whole number", "3:26"),
    ("totals.step.tp.count: {max: -1}", "'-1' is not above zero", "3:26"),
    ("totals.step.tp.count: {max: true}", "'true' is no number", "3:26"),
    ("memory.total_bytes: {max: .nan}", "'.nan' is no size", "3:24"),
    ("memory.total_bytes: {max: .inf}", "'.inf' is no size", "3:24"),
    ("memory.total_bytes: {max: 1e308}", "'1e308' is too large: the field is in bytes", "3:24"),
    ("step.tokens_per_s: {min: nan}", "'nan' is no number", "3:23"),
    ("step.tokens_per_s: {min: 1e999}", "'1e999' is not finite", "3:23"),
    ("step.time_s: {measured: inf, tolerance: 10%}", "'inf' is no time", "3:17"),
    ("step.time_s: {measured: .nan, max: 1 s}", "'.nan' is no time", "3:17"),
    ("step.time_s: {measured: 5 s, tolerance: .nan}", "'.nan' is no share", "3:32"),
    ("step.time_s: {measured: 5 s, tolerance: 10}", "'10' is above 1 and has no %", "3:32"),
    ("step.time_s: {tolerance: 10%}", "a tolerance without a measured value", "3:3"),
    ("step.time_s: {measured: 5 s}", "a measured value without a bound", "3:3"),
    ("step.time_s: {}", "no limit of step.time_s", "3:3"),
    ("step.time_s: 5 s", "no limit of step.time_s", "3:3"),
    ("step.time_s: {mx: 5 s}", "unknown key in a limit 'mx'", "3:17"),
    ("step.time_s: {max: [1, 2]}", "no number for max", "3:17"),
    ("step.time_s: {max: }", "no number for max", "3:17"),
    ("step.time_s: {only: [fast]}", "step.time_s is a number, not a name", "3:17"),
    ("levels.tp: {max: 1}", "levels.tp is no number, so it has no max", "3:15"),
    ("inputs.model.name: {max: 1}", "inputs.model.name is no number", "3:23"),
    ("levels.tp: {only: [nvlnk]}", "unknown name in levels.tp 'nvlnk'", "3:22"),
    ("warnings: {none: [tp-crosses-levels]}", "did you mean tp-crosses-level", "3:21"),
    ("warnings: {none: []}", "no list of names for none", "3:14"),
    ("warnings: {none: {a: b}}", "no list of names for none", "3:14"),
    ("calls.step.tp.all_gather: {max: 5}", "calls.step.tp.all_gather is 0 although tp is 8", "3:3"),
    ("totals: {block: {max: 3}}", "unknown key in a limit 'block'", "3:12"),
    ("step.mfu: {min: 1%}\n  step.mfu: {min: 2%}", "the key 'step.mfu' stands twice", "4:3"),
    ("step.mfu: *gone", "the alias *gone has no anchor before it", "3:13"),
    ("step.mfu: &me {min: *me}", "the alias *me stands inside what it names", "3:23"),
    ("step.mfu: !!python/object {min: 1%}", "is not allowed", "3:13"),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "message", "where"), BAD_LIMITS)
def test_a_limit_that_cannot_be_held_is_an_error(limit: str, message: str, where: str, check: Any) -> None:
    ran = check(f"  {limit}\n")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert f"b.yaml:{where}" in ran.err


def test_no_traffic_where_a_degree_is_above_one_says_where_it_is(check: Any) -> None:
    job = "{model: llama-3-8b, hardware: h100, parallelism: {dp: 4}}"
    ran = check("  totals.block.dp.wire_bytes: {max: 1 GB}\n", job=job)
    assert ran.status == 2
    assert "totals.block.dp.wire_bytes is 0 although dp is 4: a limit on it checks nothing" in ran.err
    # 8,030,261,248 parameters in fp32 round a ring of four.
    assert f"totals.step.dp.wire_bytes is {8_030_261_248 * 4 * 2 * 3 // 4:,}" in ran.err
    assert check("  totals.step.dp.wire_bytes: {max: 50 GB}\n", job=job).status == 0


def test_what_is_not_known_without_a_machine_is_an_error(check: Any) -> None:
    job = "{model: gpt3-175b, parallelism: {tp: 8}}"
    for field in ("totals.block.tp.time_s: {max: 1 s}", "levels.tp: {only: [nvlink]}", "step.time_s: {max: 1 s}"):
        ran = check(f"  {field}\n", job=job)
        assert (ran.status, "is not known for this job" in ran.err) == (2, True)
    assert check("  totals.block.tp.wire_bytes: {max: 1 GB}\n", job=job).status == 0


BAD_FILES = [
    ("", "the file is empty", "b.yaml"),
    ("# nothing\n", "the file is empty", "b.yaml"),
    ("- a\n", "no mapping of keys to values", "b.yaml"),
    ("\x00\x01", "not valid YAML", "b.yaml"),
    (b"\xff\xfe\x00b", "not UTF-8 text", "b.yaml"),
    (b"\x7fELF\x02\x01\x01\x00", "not valid YAML", "b.yaml"),
    ("limits: {step.mfu: {min: 1%}}\n", "a budget without a job", "b.yaml:1:1"),
    ("job: llama-3-70b-h100\n", "a budget without limits checks nothing", "b.yaml:1:1"),
    ("job: llama-3-70b-h100\nlimits:\n", "a budget without limits checks nothing", "b.yaml:2:8 limits"),
    ("job: llama-3-70b-h100\nlimits: {}\n", "a budget without limits checks nothing", "b.yaml:2:9 limits"),
    ("job: llama-3-70b-h100\nlimits: [a]\n", "no mapping of fields to limits", "b.yaml:2:9 limits"),
    ("job: llama-3-70b-h100\nlimit: {a: {max: 1}}\n", "unknown key in the budget 'limit'", "b.yaml:2:1"),
    ("job: a\njobs: [b]\nlimits: {step.mfu: {min: 1%}}\n", "job and jobs both", "b.yaml:2:1"),
    ("jobs: []\nlimits: {step.mfu: {min: 1%}}\n", "no jobs", "b.yaml:1:7 jobs"),
    ("jobs: a\nlimits: {step.mfu: {min: 1%}}\n", "no list of jobs", "b.yaml:1:7 jobs"),
    ("job: 8\nlimits: {step.mfu: {min: 1%}}\n", "no job", "b.yaml:1:6 job"),
    ("job: [a]\nlimits: {step.mfu: {min: 1%}}\n", "a list where one job is expected", "b.yaml:1:6 job"),
    ("job: lama-3-70b-h100\nlimits: {step.mfu: {min: 1%}}\n", "unknown job preset 'lama-3-70b-h100'", "b.yaml:1:6 job"),
    ("job: no/such.yaml\nlimits: {step.mfu: {min: 1%}}\n", "cannot be read: no such file or directory: no/such.yaml", "b.yaml:1:6 job"),
    ("job: {model: gpt3-175b, paralelism: {tp: 8}}\nlimits: {step.mfu: {min: 1%}}\n", "unknown key in the job 'paralelism'", "b.yaml:1:25"),
    ("job: {model: gpt3-175b, parallelism: {tp: x}}\nlimits: {step.mfu: {min: 1%}}\n", "'x' is no whole number", "b.yaml:1:43 parallelism.tp"),
    ("jobs: [gpt3-175b-a100, gpt3-175b-a100]\nlimits: {step.mfu: {min: 1%}}\n", "two jobs are called", "b.yaml:1:24"),
    ("schema: commcalc/budget/9\njob: gpt3-175b-a100\nlimits: {step.mfu: {min: 1%}}\n", "another schema", "b.yaml:1:9"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "where"), BAD_FILES)
def test_a_file_that_is_no_budget(
    text: str | bytes, message: str, where: str, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    ran = inside("check", "b.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert f"  at {where}" in ran.err


def test_a_job_that_is_not_legal_is_three_and_named_at_its_place(check: Any, tmp_path: Path) -> None:
    ran = check("  step.mfu: {min: 99%}\n", "--json", job=GPT.replace("tp: 8", "tp: 7"))
    assert ran.status == 3
    first = ran.json["error"]["violations"][0]
    assert first["message"] == "tp 7 is not legal for gpt3-175b: num_attention_heads 96 mod 7 = 5"
    assert first["where"] == "b.yaml:1:6 job gpt3-175b: parallelism.tp (--tp 7)"
    (tmp_path / "j.yaml").write_text("model: gpt3-175b\nparallelism: {tp: 7}\n")
    assert "b.yaml:1:6 job j.yaml: parallelism.tp" in check("  step.mfu: {min: 99%}\n", job="j.yaml").err


def test_all_that_is_wrong_is_told_at_once(check: Any) -> None:
    limits = "  step.mfu: {min: 40}\n  stp.mfu: {min: 1%}\n  levels.tp: {max: 1}\n  step.hfu: {mn: 1}\n"
    ran = check(limits, "--json", job="{model: gpt3-175b, hardware: h100, parallelism: {tp: 8}, x: 1}")
    assert ran.status == 2
    # The job cannot be read, so its fields cannot be looked up.
    assert [one["message"].split(" '")[0] for one in ran.json["error"]["violations"]] == [
        "unknown key in a limit", "unknown key in the job",
    ]  # fmt: skip
    ran = check(limits, "--json")
    places = [one["where"].split(" ")[0] for one in ran.json["error"]["violations"]]
    assert places == ["b.yaml:6:14", "b.yaml:3:14", "b.yaml:4:3", "b.yaml:5:15"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--measured", "step.mfu"), "gives no value"),
        (("--measured", "step.hfu=1%"), "unknown limit 'step.hfu'"),
        (("--measured", "step.mfu=1%", "--measured", "step.mfu=2%"), "two measured values of step.mfu"),
        (("--measured", "step.mfu=nan"), "'nan' is no share"),
        (("--set", "parallelism.tpp=8"), "unknown key in parallelism 'tpp'"),
        (("--json", "--format", "junit"), "contradict each other"),
        (("--format", "gitlab"), "unknown format 'gitlab'"),
    ],
)
def test_options_that_say_nothing(options: tuple[str, ...], message: str, check: Any) -> None:
    ran = check("  step.mfu: {min: 1%}\n", *options)
    assert ran.status == 2
    assert message in ran.err + ran.out


# Units


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("memory.total_bytes", "1 GiB", 2**30),
        ("memory.total_bytes", "0", 0),
        ("memory.margin_bytes", "-1 GB", -(10**9)),
        ("crossing_bytes.tp", "1kB", 1000),
        ("step.time_s", "5.2 ms", 0.0052),
        ("step.time_s", "2", 2.0),
        ("step.exposed.tp", "3us", 3e-6),
        ("inputs.hardware.network.nvlink.bandwidth_bytes_per_s", "400 Gb/s", 5e10),
        ("inputs.hardware.network.nvlink.bandwidth_bytes_per_s", "5e10", 5e10),
        ("block.exposed_share", "25%", 0.25),
        ("block.exposed_share", "0.25", 0.25),
        ("step.tokens_per_s", "1_000.5", 1000.5),
        ("step.train_days", "2.5", 2.5),
    ],
)
def test_bounds_are_read_in_the_unit_of_the_field(path: str, text: str, value: float) -> None:
    assert bound_of(Leaf(scalar(text), text, "x"), quantity_of(path, 1.0)) == value


def test_a_negative_size_is_refused_where_none_can_be() -> None:
    with pytest.raises(UnitError, match="is negative"):
        bound_of(Leaf("-1 GB", "-1 GB", "x"), quantity_of("memory.total_bytes", 1))


def test_every_code_of_a_warning_is_known() -> None:
    found = set()
    for path in (ROOT / "commcalc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Warn"
            if called and node.args and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    assert found <= set(WARNINGS)
    assert len(found) > 15
