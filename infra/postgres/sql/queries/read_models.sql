-- Reads of `turns` and `messages`, each with the sequence that its one snapshot is at.

-- name: turn
SELECT
    s.last_sequence AS as_of_sequence, t.turn_id::text AS turn_id, t.enqueue_sequence, t.status, t.input,
    t.context_version, t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates,
    t.queued_at, t.first_sequence, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM sessions AS s
LEFT JOIN turns AS t
    ON
        t.session_id = s.session_id
        AND t.generation = s.turns_generation
        AND (t.turn_id = $2::text::uuid OR t.external_id = $3::text)
WHERE s.session_id = $1::uuid
ORDER BY (t.external_id = $3::text) IS TRUE DESC
LIMIT 1;

-- name: turns
-- Newest first: enqueue_sequence below the cursor.
SELECT
    s.last_sequence AS as_of_sequence, t.turn_id::text AS turn_id, t.enqueue_sequence, t.status, t.input,
    t.context_version, t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates,
    t.queued_at, t.first_sequence, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM sessions AS s
LEFT JOIN LATERAL (
    SELECT * FROM turns AS o
    WHERE
        o.session_id = s.session_id
        AND o.generation = s.turns_generation
        AND ($2::text IS NULL OR o.status = $2::text)
        AND o.enqueue_sequence < $3::bigint
    ORDER BY o.enqueue_sequence DESC
    LIMIT $4::bigint
) AS t ON true
WHERE s.session_id = $1::uuid
ORDER BY t.enqueue_sequence DESC;

-- name: messages_before
-- The newest that lie before a place, in reading order.
SELECT
    s.last_sequence AS as_of_sequence, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM sessions AS s
LEFT JOIN LATERAL (
    SELECT * FROM messages AS o
    WHERE
        o.session_id = s.session_id
        AND o.generation = s.messages_generation
        AND (o.enqueue_sequence, o.ordinal) < ($2::bigint, $3::bigint)
    ORDER BY o.enqueue_sequence DESC, o.ordinal DESC
    LIMIT $4::bigint
) AS m ON true
WHERE s.session_id = $1::uuid
ORDER BY m.enqueue_sequence, m.ordinal;

-- name: messages_after
SELECT
    s.last_sequence AS as_of_sequence, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM sessions AS s
LEFT JOIN LATERAL (
    SELECT * FROM messages AS o
    WHERE
        o.session_id = s.session_id
        AND o.generation = s.messages_generation
        AND (o.enqueue_sequence, o.ordinal) > ($2::bigint, $3::bigint)
    ORDER BY o.enqueue_sequence, o.ordinal
    LIMIT $4::bigint
) AS m ON true
WHERE s.session_id = $1::uuid
ORDER BY m.enqueue_sequence, m.ordinal;

-- name: turn_chain
-- From a turn up through its parents: what its history is made of. Depth is bounded by the number of the session's turns.
WITH RECURSIVE chain AS (
    SELECT t.session_id, t.generation, t.turn_id, t.parent_turn_id, 0 AS depth
    FROM sessions AS s
    INNER JOIN turns AS t ON t.session_id = s.session_id AND t.generation = s.turns_generation
    WHERE s.session_id = $1::uuid AND t.turn_id = $2::uuid
    UNION ALL
    SELECT p.session_id, p.generation, p.turn_id, p.parent_turn_id, c.depth + 1
    FROM chain AS c
    INNER JOIN turns AS p
        ON p.session_id = c.session_id AND p.generation = c.generation AND p.turn_id = c.parent_turn_id
)
SELECT
    t.turn_id::text AS turn_id, t.enqueue_sequence, t.status, t.input, t.context_version, t.idempotency_key,
    t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates, t.queued_at, t.first_sequence,
    t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame, t.rewritten_input, t.output, t.error,
    t.usage, t.requirements, t.superseded_by::text AS superseded_by, t.parent_turn_id::text AS parent_turn_id,
    t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at, t.finished_at, t.progress, t.leg_started_at,
    t.expires_at
FROM chain AS c
INNER JOIN turns AS t ON t.session_id = c.session_id AND t.generation = c.generation AND t.turn_id = c.turn_id
ORDER BY c.depth;
