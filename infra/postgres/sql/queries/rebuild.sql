-- Rebuilds of turns ($1 = 'turns') and messages, as the worker role.

-- name: lock
SELECT pg_advisory_lock(hashtext('turnlog rebuild ' || $1::text));

-- name: share
SELECT pg_advisory_lock_shared(hashtext('turnlog rebuild ' || $1::text));

-- name: unlock
SELECT pg_advisory_unlock(hashtext('turnlog rebuild ' || $1::text));

-- name: open_generation
SELECT open_generation($1, $2) AS generation;

-- name: clear
SELECT clear_generation($1, $2, $3::text []::uuid []) AS gone;

-- name: sessions_after
SELECT session_id::text AS session_id FROM sessions WHERE session_id > $1::text::uuid ORDER BY session_id LIMIT $2;

-- name: forget_rows
SELECT forget_rows($1, $2::text []::uuid []) AS gone;

-- name: forget_generations
SELECT forget_generations($1) AS gone;

-- name: older
-- Sessions that are not served from the newest generation.
SELECT count(*) AS sessions
FROM sessions AS s
WHERE
    CASE $1 WHEN 'turns' THEN s.turns_generation ELSE s.messages_generation END
    < (SELECT max(g.generation) FROM projection_generations AS g WHERE g.name = $1);

-- name: left
-- Sessions not served from generation $2 or newer, of how many, and their events.
SELECT
    count(*) AS sessions,
    count(*) FILTER (WHERE s.generation < $2) AS sessions_left,
    coalesce(sum(s.last_sequence), 0)::bigint AS events,
    coalesce(sum(s.last_sequence) FILTER (WHERE s.generation < $2), 0)::bigint AS events_left
FROM (
    SELECT last_sequence, CASE $1 WHEN 'turns' THEN turns_generation ELSE messages_generation END AS generation
    FROM sessions
) AS s;

-- name: pending
-- The next ones of part $5 of $4, after $3.
SELECT s.session_id::text AS session_id, s.last_sequence,
    CASE $1 WHEN 'turns' THEN s.turns_generation ELSE s.messages_generation END AS generation
FROM sessions AS s
WHERE
    CASE $1 WHEN 'turns' THEN s.turns_generation ELSE s.messages_generation END < $2
    AND s.session_id > $3::text::uuid
    AND mod(abs(hashtext(s.session_id::text)::bigint), $4) = $5
ORDER BY s.session_id
LIMIT $6;

-- name: heads
-- Under their locks.
SELECT s.session_id::text AS session_id, s.last_sequence,
    CASE $1 WHEN 'turns' THEN s.turns_generation ELSE s.messages_generation END AS generation
FROM sessions AS s
WHERE s.session_id = any($2::text []::uuid []);

-- name: events
-- Of several sessions (named by their place among them), each after one sequence and up to another, by type where the
-- projection needs but some.
SELECT
    w.place, e.sequence, e.event_id::text AS event_id, e.type, e.schema_version,
    e.turn_id::text AS turn_id, e.created_at, e.payload, e.salt IS NULL AS erased
FROM unnest($1::text [], $2::bigint [], $3::bigint []) WITH ORDINALITY AS w (session_id, after, upto, place)
CROSS JOIN LATERAL (
    SELECT * FROM events AS x
    WHERE
        x.session_id = w.session_id::uuid AND x.sequence > w.after AND x.sequence <= w.upto
        AND ($4::text [] IS NULL OR x.type = any($4))
    ORDER BY x.sequence
    LIMIT $5
) AS e;

-- name: turns
-- All rows of sessions in one generation each.
SELECT
    t.session_id::text AS session_id, t.turn_id::text AS turn_id, t.enqueue_sequence, t.input, t.context_version,
    t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates, t.queued_at,
    t.first_sequence, t.status, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM unnest($1::text [], $2::integer []) AS w (session_id, generation)
INNER JOIN turns AS t ON t.session_id = w.session_id::uuid AND t.generation = w.generation;

-- name: messages
SELECT
    m.session_id::text AS session_id, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM unnest($1::text [], $2::integer []) AS w (session_id, generation)
INNER JOIN messages AS m ON m.session_id = w.session_id::uuid AND m.generation = w.generation;

-- name: turns_of
-- Rows by their ids.
SELECT
    t.session_id::text AS session_id, t.turn_id::text AS turn_id, t.enqueue_sequence, t.input, t.context_version,
    t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates, t.queued_at,
    t.first_sequence, t.status, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM unnest($1::text [], $2::integer [], $3::text []) AS w (session_id, generation, turn_id)
INNER JOIN turns AS t
    ON t.session_id = w.session_id::uuid AND t.generation = w.generation AND t.turn_id = w.turn_id::uuid;

-- name: messages_of
SELECT
    m.session_id::text AS session_id, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM unnest($1::text [], $2::integer [], $3::text []) AS w (session_id, generation, message_id)
INNER JOIN messages AS m
    ON m.session_id = w.session_id::uuid AND m.generation = w.generation AND m.message_id = w.message_id::uuid;

-- name: turns_at
-- Rows by the place of their turn in the queue.
SELECT
    t.session_id::text AS session_id, t.turn_id::text AS turn_id, t.enqueue_sequence, t.input, t.context_version,
    t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates, t.queued_at,
    t.first_sequence, t.status, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM unnest($1::text [], $2::integer [], $3::bigint []) AS w (session_id, generation, enqueue_sequence)
INNER JOIN turns AS t
    ON t.session_id = w.session_id::uuid AND t.generation = w.generation AND t.enqueue_sequence = w.enqueue_sequence;

-- name: messages_at
SELECT
    m.session_id::text AS session_id, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM unnest($1::text [], $2::integer [], $3::bigint []) AS w (session_id, generation, enqueue_sequence)
INNER JOIN messages AS m
    ON m.session_id = w.session_id::uuid AND m.generation = w.generation AND m.enqueue_sequence = w.enqueue_sequence
ORDER BY m.session_id, m.enqueue_sequence, m.ordinal;

-- name: turns_unlike
-- One session's rows of generation $2 that are not there or not equal in every column in generation $3: json by its exact text.
SELECT t.turn_id::text AS id
FROM turns AS t
LEFT JOIN turns AS s
    ON s.session_id = t.session_id AND s.generation = $3 AND s.turn_id = t.turn_id
WHERE
    t.session_id = $1::text::uuid AND t.generation = $2
    AND NOT
    (
        t.turn_id, t.enqueue_sequence, t.input::text, t.context_version, t.idempotency_key, t.external_id,
        t.metadata::text, t.forked_from::text, t.regenerates, t.queued_at, t.first_sequence, t.status,
        t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame, t.rewritten_input::text,
        t.output, t.error::text, t.usage::text, t.requirements::text, t.superseded_by, t.parent_turn_id,
        t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at, t.finished_at, t.progress::text,
        t.leg_started_at, t.expires_at
    ) IS NOT DISTINCT FROM (
        s.turn_id, s.enqueue_sequence, s.input::text, s.context_version, s.idempotency_key, s.external_id,
        s.metadata::text, s.forked_from::text, s.regenerates, s.queued_at, s.first_sequence, s.status,
        s.last_sequence, s.attempt, s.deaths, s.released, s.continued, s.next_frame, s.rewritten_input::text,
        s.output, s.error::text, s.usage::text, s.requirements::text, s.superseded_by, s.parent_turn_id,
        s.interrupt_by, s.interrupt_then, s.checkpoint_sequence, s.started_at, s.finished_at, s.progress::text,
        s.leg_started_at, s.expires_at
    );

-- name: messages_unlike
SELECT m.message_id::text AS id
FROM messages AS m
LEFT JOIN messages AS s
    ON s.session_id = m.session_id AND s.generation = $3 AND s.message_id = m.message_id
WHERE
    m.session_id = $1::text::uuid AND m.generation = $2
    AND NOT
    (
        m.message_id, m.turn_id, m.enqueue_sequence, m.ordinal, m.role, m.parts::text, m.items::text, m.status,
        m.first_sequence, m.last_sequence, m.created_at
    ) IS NOT DISTINCT FROM (
        s.message_id, s.turn_id, s.enqueue_sequence, s.ordinal, s.role, s.parts::text, s.items::text, s.status,
        s.first_sequence, s.last_sequence, s.created_at
    );

-- name: turns_only
-- One session's rows of generation $2 that are not in generation $3.
SELECT t.turn_id::text AS id
FROM turns AS t
WHERE
    t.session_id = $1::text::uuid AND t.generation = $2
    AND NOT EXISTS (
        SELECT FROM turns AS s WHERE s.session_id = t.session_id AND s.generation = $3 AND s.turn_id = t.turn_id
    );

-- name: messages_only
SELECT m.message_id::text AS id
FROM messages AS m
WHERE
    m.session_id = $1::text::uuid AND m.generation = $2
    AND NOT EXISTS (
        SELECT FROM messages AS s
        WHERE s.session_id = m.session_id AND s.generation = $3 AND s.message_id = m.message_id
    );

-- name: turns_beside
-- New rows of sessions, and whether the served row of the same id (of generation `serving`, 0: none) is equal in every column:
-- json by its exact text.
SELECT
    w.place,
    (
        t.turn_id, t.enqueue_sequence, t.input::text, t.context_version, t.idempotency_key, t.external_id,
        t.metadata::text, t.forked_from::text, t.regenerates, t.queued_at, t.first_sequence, t.status,
        t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame, t.rewritten_input::text,
        t.output, t.error::text, t.usage::text, t.requirements::text, t.superseded_by, t.parent_turn_id,
        t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at, t.finished_at, t.progress::text,
        t.leg_started_at, t.expires_at
    ) IS NOT DISTINCT FROM (
        s.turn_id, s.enqueue_sequence, s.input::text, s.context_version, s.idempotency_key, s.external_id,
        s.metadata::text, s.forked_from::text, s.regenerates, s.queued_at, s.first_sequence, s.status,
        s.last_sequence, s.attempt, s.deaths, s.released, s.continued, s.next_frame, s.rewritten_input::text,
        s.output, s.error::text, s.usage::text, s.requirements::text, s.superseded_by, s.parent_turn_id,
        s.interrupt_by, s.interrupt_then, s.checkpoint_sequence, s.started_at, s.finished_at, s.progress::text,
        s.leg_started_at, s.expires_at
    ) AS same,
    t.turn_id::text AS turn_id, t.enqueue_sequence, t.input, t.context_version, t.idempotency_key, t.external_id,
    t.metadata, t.forked_from, t.regenerates::text AS regenerates, t.queued_at, t.first_sequence, t.status,
    t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame, t.rewritten_input, t.output, t.error,
    t.usage, t.requirements, t.superseded_by::text AS superseded_by, t.parent_turn_id::text AS parent_turn_id,
    t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at, t.finished_at, t.progress,
    t.leg_started_at, t.expires_at
FROM unnest($1::text [], $2::integer [], $3::integer []) WITH ORDINALITY AS w (session_id, generation, serving, place)
INNER JOIN turns AS t ON t.session_id = w.session_id::uuid AND t.generation = w.generation
LEFT JOIN turns AS s
    ON s.session_id = t.session_id AND s.generation = w.serving AND s.turn_id = t.turn_id;

-- name: messages_beside
-- New rows of sessions, and whether the served row of the same id (of generation `serving`, 0: none) is equal in every column:
-- json by its exact text.
SELECT
    w.place,
    (
        m.message_id, m.turn_id, m.enqueue_sequence, m.ordinal, m.role, m.parts::text, m.items::text, m.status,
        m.first_sequence, m.last_sequence, m.created_at
    ) IS NOT DISTINCT FROM (
        s.message_id, s.turn_id, s.enqueue_sequence, s.ordinal, s.role, s.parts::text, s.items::text, s.status,
        s.first_sequence, s.last_sequence, s.created_at
    ) AS same,
    m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence, m.ordinal, m.role, m.parts,
    m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM unnest($1::text [], $2::integer [], $3::integer []) WITH ORDINALITY AS w (session_id, generation, serving, place)
INNER JOIN messages AS m ON m.session_id = w.session_id::uuid AND m.generation = w.generation
LEFT JOIN messages AS s
    ON s.session_id = m.session_id AND s.generation = w.serving AND s.message_id = m.message_id;

-- name: served_rows
-- How many rows sessions have in a generation (0: none is of interest).
SELECT w.session_id, CASE $1
    WHEN 'turns' THEN (SELECT count(*) FROM turns AS t WHERE t.session_id = w.session_id::uuid AND t.generation = w.serving)
    ELSE (SELECT count(*) FROM messages AS m WHERE m.session_id = w.session_id::uuid AND m.generation = w.serving)
END AS rows
FROM unnest($2::text [], $3::integer []) AS w (session_id, serving)
WHERE w.serving > 0;

-- name: flip
-- Commits of a rebuild do not wait for the disk, this one does: what was told to be served is.
UPDATE sessions AS s
SET
    turns_generation = CASE $1 WHEN 'turns' THEN $3 ELSE s.turns_generation END,
    messages_generation = CASE $1 WHEN 'messages' THEN $3 ELSE s.messages_generation END
FROM (SELECT set_config('synchronous_commit', 'on', true)) AS waiting
WHERE s.session_id = any($2::text []::uuid []);
