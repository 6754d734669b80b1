"""Delivery of one session's events to many viewers.

The way of an event: `hub` holds a `feed` for each session with local viewers; the feed merges what the subscription
brings into the number line and hands each loop step's events, joined and encoded once, to every `viewer`; a viewer
that is behind pulls replay pages (`replays`) until it meets the feed. `attach` is the order of steps in which a
connection becomes a viewer, `response` the HTTP side of it, `frames` every byte we write ourselves."""
