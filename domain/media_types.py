"""Kinds of files that agents are given, by media type and, where that says nothing, by the ending of the name."""

from typing import Literal

Kind = Literal["image", "audio", "video", "document"]

_OFFICE = "application/vnd.openxmlformats-officedocument."

_BY_ENDING: dict[str, str] = {
    "avif": "image/avif", "bmp": "image/bmp", "gif": "image/gif", "heic": "image/heic", "heif": "image/heif",
    "jpeg": "image/jpeg", "jpg": "image/jpeg", "png": "image/png", "tif": "image/tiff", "tiff": "image/tiff",
    "webp": "image/webp",
    "aac": "audio/aac", "flac": "audio/flac", "m4a": "audio/m4a", "mp3": "audio/mp3", "ogg": "audio/ogg",
    "wav": "audio/wav",
    "3gp": "video/3gpp", "flv": "video/x-flv", "mov": "video/quicktime", "mp4": "video/mp4", "mpeg": "video/mpeg",
    "mpg": "video/mpg", "webm": "video/webm", "wmv": "video/wmv",
    "css": "text/css", "csv": "text/csv", "doc": "application/msword", "docx": _OFFICE + "wordprocessingml.document",
    "eml": "message/rfc822", "htm": "text/html", "html": "text/html", "js": "text/javascript",
    "json": "application/json", "markdown": "text/markdown", "md": "text/markdown",
    "msg": "application/vnd.ms-outlook", "pdf": "application/pdf", "ppt": "application/vnd.ms-powerpoint",
    "pptx": _OFFICE + "presentationml.presentation", "py": "text/x-python", "rtf": "text/rtf", "txt": "text/plain",
    "xls": "application/vnd.ms-excel", "xlsx": _OFFICE + "spreadsheetml.sheet", "xml": "text/xml",
    "zip": "application/zip",
}  # fmt: skip

_MORE: dict[Kind, frozenset[str]] = {
    "image": frozenset({"image/jpg", "image/tif"}),
    "audio": frozenset({"audio/wave", "audio/mp3", "audio/mp4"}),
    "video": frozenset({"video/mpegs", "video/mpgs"}),
    "document": frozenset({"application/x-javascript", "application/x-python"}),
}

_ALIASES = {
    "application/x-zip": "application/zip",
    "application/x-zip-compressed": "application/zip",
    "application/xml": "text/xml",
    "application/rtf": "text/rtf",
    "application/javascript": "text/javascript",
}

_SAYS_NOTHING = frozenset({"", "application/octet-stream"})


def by_name(name: str | None) -> str | None:
    """The media type that the ending of a name stands for; None for endings that agents are not given."""
    return _BY_ENDING.get(name.rpartition(".")[2].lower()) if name and "." in name else None


def resolved(said: str | None, name: str | None) -> str | None:
    """What a file is, from what its sender called it and, where that says nothing, from its name. None for what agents
    are not given."""
    plain = (said or "").partition(";")[0].strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain in _SAYS_NOTHING:
        return by_name(name)
    return plain if kind_of(plain) is not None else None


def kind_of(media_type: str | None) -> Kind | None:
    """What a file of that type is to a model; None for types that agents are not given."""
    if media_type is None:
        return None
    for kind, types in _KINDS.items():
        if media_type in types:
            return kind
    return None


def _first(media_type: str) -> Kind:
    head = media_type.partition("/")[0]
    return head if head in ("image", "audio", "video") else "document"  # type: ignore[return-value]


_KINDS: dict[Kind, frozenset[str]] = {
    kind: more | {media_type for media_type in _BY_ENDING.values() if _first(media_type) == kind}
    for kind, more in _MORE.items()
}
