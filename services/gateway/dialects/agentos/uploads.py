"""Files that come with a message: as parts of the form, or in base64 as Agno's own client sends them."""

import base64
import binascii
from typing import Any

from infra.postgres.registrations import Owner
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.forms import MEDIA, Form
from services.gateway.dialects.agentos.posted import Posted
from services.gateway.rates import RateLimited

_KEPT = ("id", "url", "mime_type", "format", "filename", "name", "detail")
_MAX_METADATA_BYTES = 64 * 1024


def take_media(posted: Posted, form: Form) -> dict[str, Any]:
    """Files out of the fields that hold them in base64 join the posted ones; what names an address is returned by
    field, for the model to fetch. Raises Refused."""
    named: dict[str, Any] = {}
    for field in MEDIA:
        for said in form.media(field):
            if isinstance(content := said.get("content"), str):
                _add(posted, field, said, content)
            elif isinstance(said.get("url"), str):
                named.setdefault(field, []).append({key: said[key] for key in _KEPT if said.get(key) is not None})
            else:
                # A path would be one of a server's own files.
                raise Refused(422, f"Invalid {field}: each needs content in base64, or a url")
    return named


def _add(posted: Posted, field: str, said: dict[str, Any], content: str) -> None:
    kind = said.get("mime_type")
    kind = kind if isinstance(kind, str) else None
    try:
        # Of documents Agno writes text as it is.
        text = field == "input_files" and (kind or "").startswith("text/")
        decoded = content.encode() if text else base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"Invalid {field}: the content is not base64") from error
    name = next((said[key] for key in ("filename", "name") if isinstance(said.get(key), str)), None)
    ending = said.get("format")
    if isinstance(ending, str) and (name is None or "." not in name):
        name = f"{name or field}.{ending}"
    posted.write(posted.add(name, kind), decoded)


def metadata_of(form: Form) -> list[Any] | None:
    """What the sender says of each file, by position; what is no such list counts as none, as in AgentOS."""
    said = form.text("files_metadata")
    if said is None:
        return None
    if len(said.encode()) > _MAX_METADATA_BYTES:
        raise Refused(422, f"files_metadata exceeds the {_MAX_METADATA_BYTES}-byte limit")
    found = form.json("files_metadata")
    return [one if isinstance(one, dict) else None for one in found] if isinstance(found, list) else None


def may_begin(deps: GatewayDeps, owner: Owner) -> bool:
    """Whether a turn of theirs would be begun now: files of others are not stored. A key that is known needs none."""
    if deps.authenticator.off:
        return True
    try:
        deps.rates.take(owner)
    except RateLimited:
        return False
    deps.rates.give_back(owner)
    return True


async def keep(deps: GatewayDeps, posted: Posted) -> None:
    """Hand the files to the agent service, those that it does not have. They stay there long enough for a turn to name
    them. Raises Unavailable."""
    parts = posted.parts()
    known = await deps.agent.known_blobs(sorted({part.blob for part in parts})) if parts else set()
    for upload, part in zip(posted.files, parts, strict=True):
        if part.blob not in known:
            await deps.agent.keep_blob(part.blob, part.media_type, upload.content)
            known.add(part.blob)
