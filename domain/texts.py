"""Text made safe for PostgreSQL and JSON, at the edge: refused in input, replaced in what models say."""


def unsafe(text: str) -> bool:
    """True when the text holds U+0000 or a lone surrogate, which neither json columns nor UTF-8 can carry."""
    return "\0" in text or any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else "\0" in text


def made_safe(text: str) -> str:
    """The text with U+0000 and lone surrogates replaced by U+FFFD; the length in code points stays."""
    if not unsafe(text):
        return text
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def cut_utf8(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes of UTF-8, never ending inside a code point."""
    if len(data) <= limit:
        return data
    end = limit
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
