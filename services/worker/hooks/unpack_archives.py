"""The built-in pre-hook `unpack_archives`: the agent gets the files of a zip archive in place of the archive."""

import asyncio

from domain import media_types
from domain.parts import FilePart, Part
from services.worker.hooks.archives import MEDIA_TYPES, Archive, BadArchive
from services.worker.hooks.declared import HookRun, Refused, guardrail

_MOST_ARCHIVES = 20


@guardrail
async def unpack_archives(run: HookRun) -> list[Part] | None:
    """Replaces each zip among the files by what is in it: without directories, `__MACOSX/` and `._*`; the media type is
    that of a file's name, or none. All archives of an input are looked at before any of their files is stored. Refuses
    the input (`input_refused`) for an archive that is too large, encrypted or damaged, that has another archive in it,
    two files of one name, or names that lead out of it."""
    if not any(map(_is_archive, run.parts)):
        return None
    bounds, archives = run.attachments.archive, [part for part in run.parts if _is_archive(part)]
    if len(archives) > _MOST_ARCHIVES:
        raise Refused(f"At most {_MOST_ARCHIVES} archives can be unpacked at once.")
    entries = size = 0
    for part in archives:
        archive = await _opened(run, part)
        entries += len(archive.entries)
        size += archive.unpacked_bytes
    # Several archives are no way around what one may hold.
    if entries > bounds.entries or size > bounds.unpacked_bytes:
        raise Refused("The archives hold too much together.")
    parts: list[Part] = []
    for part in run.parts:
        parts += await _unpacked(run, part) if _is_archive(part) else [part]
    return parts


def _is_archive(part: Part) -> bool:
    return isinstance(part, FilePart) and part.media_type in MEDIA_TYPES


async def _opened(run: HookRun, part: Part) -> Archive:
    assert isinstance(part, FilePart)
    content = await run.read(part)
    try:
        # In a thread: it takes a second where an archive uses its bounds, and other turns share the loop.
        return await asyncio.to_thread(Archive, content, run.attachments.archive, run.attachments.file_bytes)
    except BadArchive as bad:
        raise Refused(f"The archive {part.name or 'of the input'} {bad}.") from bad


async def _unpacked(run: HookRun, part: Part) -> list[Part]:
    archive = await _opened(run, part)
    found: list[Part] = []
    for entry in archive.entries:
        content = await asyncio.to_thread(archive.read, entry)
        found.append(await run.keep(content, name=entry.name, media_type=media_types.by_name(entry.name)))
    return found
