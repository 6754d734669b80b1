"""Headers of a message, read by the few who need them."""

TRACEPARENT = "traceparent"
"""Of the span in which an event was published, where it is traced."""


def header_fields(block: bytes | None) -> tuple[str, dict[str, str]]:
    """Status (empty when there is none, as on published messages) and the fields by name."""
    if not block:
        return "", {}
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    _, _, status = first.partition(" ")
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields[name] = value.strip()
    return status[:3], fields
