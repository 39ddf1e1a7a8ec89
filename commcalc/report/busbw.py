"""Time, algbw and busbw of one collective as a document and as a table."""

from __future__ import annotations

from commcalc import __version__
from commcalc.network.busbw import Bandwidths, formula, ratio
from commcalc.report.table import Column, Table
from commcalc.units import format_binary, format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/busbw/1"


def busbw_document(
    found: Bandwidths, notes: tuple[str, ...], warnings: tuple[tuple[str, str], ...]
) -> dict[str, object]:
    """The document of ``commcalc busbw --json``."""
    return {"schema": SCHEMA, "version": __version__, **busbw_record(found)} | {
        "formulas": explained(found),
        "notes": list(notes),
        "warnings": [{"code": code, "message": message} for code, message in warnings],
    }


def busbw_record(found: Bandwidths) -> dict[str, object]:
    """The numbers alone."""
    over, under = ratio(found.kind, found.n)
    sent, of = found.sent
    payload = found.payload_bytes
    return {
        "collective": found.kind,
        "group_size": found.n,
        "payload_bytes": payload,
        "factor": over / under,
        "factor_formula": formula(found.kind),
        "time_s": found.time_s,
        "algbw_bytes_per_s": found.algbw,
        "busbw_bytes_per_s": found.busbw,
        "in_network": found.in_network,
        "wire_bytes": None if payload is None else -(-payload * over // under),
        "egress_bytes": None if payload is None else -(-payload * sent // of),
        "wire_bytes_per_s": found.wire,
        "link_bytes_per_s": found.link,
        "link_ps_per_byte": None if found.link is None else 1e12 / found.link,
        "share_of_link": found.share_of_link,
    }


def both(rate: float) -> str:
    """A rate in bytes and in bits.

    >>> both(50e9)
    '50 GB/s = 400 Gb/s'
    """
    return f"{format_rate(rate)} = {format_rate(8 * rate).replace('B/s', 'b/s')}"


def explained(found: Bandwidths) -> list[str]:
    """Each number with its formula and the values put into it."""
    n = found.n
    over, under = ratio(found.kind, n)
    factor = over / under
    lines = []
    if found.time_s and found.payload_bytes:
        size = f"{format_bytes(found.payload_bytes)} B"
        lines.append(f"algbw = payload / time = {size} / {format_seconds(found.time_s)} = {format_rate(found.algbw)}")
    symbols = formula(found.kind)
    values = {"2(n-1)/n": f"2*{n - 1}/{n} = {factor:.6g}", "(n-1)/n": f"{n - 1}/{n} = {factor:.6g}"}
    factor_text = f"{symbols} = {values[symbols]}" if symbols in values else f"{factor:.6g}"
    lines.append(f"factor = {factor_text}")
    lines.append(f"busbw = algbw * factor = {format_rate(found.algbw)} * {factor:.6g} = {format_rate(found.busbw)}")
    if factor and not found.time_s:  # from rates alone
        back = f"{format_rate(found.busbw)} / {factor:.6g}"
        lines.append(f"algbw = busbw / factor = {back} = {format_rate(found.algbw)}")
    if found.in_network and n > 1:
        sent, of = found.sent
        symbols, what = ("(n+1)/n", "its data and its share of the result") if found.own_copy else ("n/n", "its data")
        lines.append(
            f"on the wire = algbw * {symbols} = {format_rate(found.algbw)} * {sent}/{of} = {format_rate(found.wire)}: "
            f"the switch reduces, so a device sends {what} once"
        )
    if found.link is not None and found.share_of_link is not None:
        lines.append(
            f"share of the link = {format_rate(found.wire)} / {format_rate(found.link)} one way"
            f" = {100 * found.share_of_link:.4g} %"
        )
    return lines


def busbw_table(found: Bandwidths) -> Table:
    """The numbers with their units."""
    over, under = ratio(found.kind, found.n)
    factor = over / under
    rows = []
    if found.payload_bytes is not None:
        rows.append(("payload", f"{format_bytes(found.payload_bytes)} B", format_binary(found.payload_bytes)))
    if found.time_s is not None:
        rows.append(("time", format_seconds(found.time_s), ""))
    symbols = formula(found.kind)
    rows += [
        ("algbw", format_rate(found.algbw), _bits(found.algbw)),
        ("factor", f"{factor:.6g}", symbols if symbols != "1" else ""),
        ("busbw", format_rate(found.busbw), _bits(found.busbw)),
        ("on the wire", format_rate(found.wire), _bits(found.wire)),
    ]
    if found.link is not None and found.share_of_link is not None:
        rows.append(("link, one way", format_rate(found.link), _bits(found.link)))
        rows.append(("", f"{1e12 / found.link:.4g} ps a byte", ""))
        rows.append(("share of the link", f"{100 * found.share_of_link:.4g} %", ""))
    title = f"{found.kind} over {found.n} device{'s' if found.n != 1 else ''}"
    if found.in_network:
        title += ", reduced in the switch"
    return Table(title, (Column("what"), Column("value", True), Column("also")), tuple(rows))


def _bits(rate: float) -> str:
    return both(rate).partition(" = ")[2]
