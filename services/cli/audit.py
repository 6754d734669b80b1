"""`turnlog audit`: replay from zero and check everything."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators
from rich.console import Console

from domain.ids import is_uuid
from infra.postgres.audit_reader import SessionIds, open_audit_reader
from infra.settings import load
from infra.system import SystemClock
from projections.audit import RULES, Anchored, Finding
from projections.audit.export import audit_export
from services.cli.agent_database import agent_database, database_in_use
from services.cli.anchoring import Anchor
from services.cli.auditing import Totals, audit_database
from services.cli.failures import FINE, FOUND_WRONG, CannotRun, say
from services.cli.long_work import run_long


def audit(
    *,
    session: str | None = None,
    parallel: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=256))] = 1,
    json: bool = False,
    file: Path | None = None,
    anchor: Path | None = None,
    key: Path | None = None,
) -> int:
    """Replay every event from zero and check numbers, hash chain, transitions, tools, frames, read models and replies.

    Reads only, while everything runs. Exit code 1 when something is wrong; each finding names session, sequence and
    rule (docs/audit.md).

    Parameters
    ----------
    session
        Audit one session, by its id.
    parallel
        Processes that audit at the same time.
    json
        Print one JSON document.
    file
        Audit a file that `turnlog export` wrote; needs no database.
    anchor
        Check the signed heads in this file, which finds a tail that was cut off or a chain that was rewritten; after a
        clean audit of everything it is written anew. Where there is none yet it is made.
    key
        Ed25519 key of the anchor, a JWK file: a private one signs, a public one only checks. By default anchor.key in
        the data directory, made when it is missing; keep it where who writes to the database cannot read it.
    """
    if session is not None and not is_uuid(session):
        raise CannotRun("--session takes the id of a session (a UUID), not its external id")
    totals = Totals()
    made = Anchor(anchor, key or load().data.absolute() / "anchor.key") if anchor is not None else None
    if made is not None and made.path.exists():
        totals.findings += made.forged()
        made.good = not totals.findings
    if file is not None:
        if made is not None and not made.path.exists():
            raise CannotRun(f"{made.path} is not there; an export is checked against an anchor made earlier")
        _audit_file(file, made.heads() if made is not None and made.good else None, totals)
        if made is None:
            say("no --anchor: whether later events were cut off, or all of it was invented, cannot be told")
    else:
        with database_in_use():
            run_long(_audit(totals, session, parallel, made, _progress(json)))
    _print(totals, json)
    return FOUND_WRONG if totals.findings else FINE


def _audit_file(path: Path, heads: dict[str, Anchored] | None, totals: Totals) -> None:
    try:
        with path.open("rb") as lines:
            report = audit_export(lines, heads)
            totals.add(report)
            signed = (heads or {}).get(report.session_id)
            if signed is not None and signed.sequence < report.events:
                say(f"signed up to {signed.sequence} of {report.events} events: only the chain speaks for the rest")
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror}") from error


async def _audit(
    totals: Totals, session: str | None, parallel: int, anchor: Anchor | None, progress: Callable[[Totals], None]
) -> None:
    dsn = agent_database()
    ids = None if session is None else SessionIds(session, session)
    totals.merge(await audit_database(dsn, ids, parallel, progress))
    async with open_audit_reader(dsn) as reader:
        if session is None:
            async for name in reader.damaged_blobs():
                totals.findings.append(Finding("", 0, "blobs", f"the content of {name} is not what its name says"))
        elif not totals.sessions:
            raise CannotRun(f"there is no session {session}")
        if anchor is None:
            return
        if anchor.good:
            totals.findings += await anchor.check(reader, session)
        if session is None and not totals.findings:
            signed = await anchor.sign(reader, SystemClock())
            say("the key is a public one: the anchor is left as it is" if signed < 0 else f"signed {signed} heads")


def _progress(quiet: bool) -> Callable[[Totals], None]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        return lambda totals: None
    return lambda totals: console.print(
        f"{totals.sessions:,} sessions, {totals.events:,} events, {len(totals.findings)} findings", end="\r"
    )


def _print(totals: Totals, json: bool) -> None:
    if json:
        sys.stdout.write(msgspec.json.encode(totals).decode() + "\n")
        return
    for finding in totals.findings:
        place = f"{finding.session_id or '-'} {finding.sequence:>6}"
        sys.stdout.write(f"{place}  {finding.rule}: {finding.detail}\n")
    for rule in sorted({finding.rule for finding in totals.findings}):
        sys.stdout.write(f"  {rule}: {RULES[rule]}\n")
    for name, count in sorted(totals.skipped.items()):
        sys.stdout.write(f"skipped {count} events of {name}: this release does not know them\n")
    for session_id, sequence in totals.not_judged.items():
        sys.stdout.write(f"{session_id}: only chain and digests were checked after {sequence}\n")
    erased = f", {totals.erased_sessions} of them erased in part" if totals.erased_sessions else ""
    verdict = f"{len(totals.findings)} findings" if totals.findings else "clean"
    sys.stdout.write(f"{totals.sessions} sessions{erased}, {totals.events} events: {verdict}\n")
