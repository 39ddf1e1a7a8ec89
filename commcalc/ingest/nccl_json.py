"""The JSON file of nccl-tests (``-J``), whole or cut off by a crash."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from commcalc.errors import SpecError
from commcalc.ingest.runs import Run
from commcalc.ingest.sweeps import Block, Point, collective_names

# A per-iteration report of a long sweep is some tens of megabytes.
MAX_JSON_BYTES = 64 * 2**20

# An object, its text, whether it is closed, and its first line.
_Document = tuple[Mapping[str, object], str, bool, int]


def read_json(text: str, source: str) -> list[Run]:
    """The runs of one or several JSON objects; the environment in the file is never kept."""
    runs = []
    for document, part, whole, line in _documents(text, source):
        runs.append(_run(document, part, whole=whole, source=source, line=line))
    return runs


def _documents(text: str, source: str) -> list[_Document]:
    decoder = json.JSONDecoder()
    found: list[_Document] = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at >= len(text):
            return found
        line = text.count("\n", 0, at) + 1
        try:
            document, end = decoder.raw_decode(text, at)
        except RecursionError:
            raise SpecError("JSON nested too deeply", where=f"{source}:{line}") from None
        except ValueError as problem:
            document = _unclosed(decoder, text, at)
            if document is None:
                place = getattr(problem, "lineno", line)
                message = getattr(problem, "msg", str(problem)).lower()
                raise SpecError(
                    f"not valid JSON: {message}",
                    where=f"{source}:{place}",
                    hint="an unfinished file is read as far as it has whole results",
                ) from None
            found.append((document, text[at:], False, line))
            return found
        if not isinstance(document, dict):
            raise SpecError("no JSON object of nccl-tests", where=f"{source}:{line}")
        found.append((document, text[at:end], True, line))
        at = end


def _unclosed(decoder: json.JSONDecoder, text: str, start: int) -> Mapping[str, object] | None:
    """What a crashed run wrote: all before the results and every whole result."""
    key = text.find('"results"', start)
    at = text.find("[", key) if key >= 0 else -1
    if at < 0:
        return None
    at += 1
    results = []
    try:
        head = json.loads(text[start:key].rstrip().rstrip(",") + "}")
        while True:
            while at < len(text) and (text[at].isspace() or text[at] == ","):
                at += 1
            result, at = decoder.raw_decode(text, at)
            results.append(result)
    except RecursionError:
        return None
    except ValueError:
        # A file that goes on after its results is not cut off but broken.
        if not results or text[at : at + 1] == "]":
            return None
    return {**head, "results": results}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    found = _number(value)
    return int(found) if found is not None and found == int(found) and abs(found) < 2**60 else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _places(text: str, count: int, line: int) -> list[int]:
    """The lines on which the results begin; the file's first where that cannot be told."""
    found, at, start = [], line, 0
    for match in re.finditer(r'"size"\s*:', text):
        at += text.count("\n", start, match.start())
        start = match.start()
        found.append(at)
    return found if len(found) == count else [line] * count


def _run(document: Mapping[str, object], text: str, *, whole: bool, source: str, line: int) -> Run:
    results, args = document.get("results"), document.get("args")
    if not isinstance(results, list):
        keys = ", ".join(str(key)[:20] for key in list(document)[:8])
        raise SpecError(
            f"JSON without a list `results`; its keys: {keys or 'none'}",
            where=f"{source}:{line}",
            hint="nccl-tests writes such a file with -J FILE",
        )
    run = Run(source, "nccl-tests json")
    names = collective_names(str(args[0]).replace("\\", "/").split("/")[-1]) if isinstance(args, list) and args else []
    if names:
        run.names["the arguments"] = names[0]
    config = _mapping(document.get("config"))
    run.threads, run.gpus = max(1, _whole(config.get("nthreads")) or 1), max(1, _whole(config.get("ngpus")) or 1)
    run.graph = bool(_whole(config.get("graph")))
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) else ():
        rank, group = _whole(_mapping(device).get("rank")), _whole(_mapping(device).get("group"))
        if rank is not None:
            run.ids.add(rank)
            run.groups.add(group or 0)
    for place, result in zip(_places(text, len(results), line), results, strict=True):
        point = _point(_mapping(result), place)
        if point is None:
            run.unreadable.append(place)
        else:
            run.add(point)
    run.wrong = _whole(_mapping(document.get("out_of_bounds")).get("count"))
    run.printed = _number(_mapping(document.get("average_bus_bandwidth")).get("bandwidth"))
    if not whole:
        run.notes.append("the file ends in mid-run: whole results were read")
    return run


def _point(result: Mapping[str, object], line: int) -> Point | None:
    size, root = _whole(result.get("size")), result.get("root")
    if size is None or size < 0:
        return None
    redop = result.get("redop")
    return Point(
        size,
        _whole(result.get("count")),
        str(result.get("type", ""))[:20],
        redop if isinstance(redop, str) else None,
        int(root)
        if isinstance(root, (str, int)) and str(root).lstrip("-").isdecimal() and len(str(root)) < 9
        else None,
        _block(result.get("out_of_place")),
        _block(result.get("in_place")),
        line,
    )


def _block(value: object) -> Block | None:
    """One block; times are printed to a hundredth of a microsecond, bandwidths to a millionth."""
    block = _mapping(value)
    if not block:
        return None
    time = _number(block.get("time", block.get("cpu_time")))
    algbw, busbw = _number(block.get("alg_bw")), _number(block.get("bus_bw"))
    return Block(
        None if time is None else time / 1e6,
        algbw,
        busbw,
        5e-7 if algbw is None else max(5e-7, 1e-6 * algbw),
        5e-7 if busbw is None else max(5e-7, 1e-6 * busbw),
        _whole(block.get("nwrong")) or 0,
    )
