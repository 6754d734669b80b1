-- What an audit reads: everything of the sessions whose id lies in [$1, $2], each kind in the order in which its rows are
-- compared. All statements of one range run in one snapshot.

-- name: chunks
-- The highest session id of each run of sessions that have some $1 events together, so that runs take about equally long.
SELECT DISTINCT ON (c.chunk) c.session_id::text AS session_id
FROM (
    SELECT s.session_id, sum(s.last_sequence) OVER (ORDER BY s.session_id) / $1::bigint AS whole
    FROM sessions AS s
) AS r
CROSS JOIN LATERAL (SELECT floor(r.whole) AS chunk, r.session_id) AS c
ORDER BY c.chunk, c.session_id DESC;

-- name: events
SELECT
    session_id, sequence, event_id, type, schema_version, turn_id, created_at, payload, private, salt, payload_digest,
    private_digest, metadata, hash
FROM events
WHERE session_id >= $1::text::uuid AND session_id <= $2::text::uuid
ORDER BY session_id, sequence;

-- name: heads
SELECT
    session_id, last_sequence, head_hash, last_event_at, agent_id, component, active_turn_id, tip_turn_id, fence,
    queue_state, next_enqueue_sequence, queued_count, closing, created_at, closed_at
FROM sessions
WHERE session_id >= $1::text::uuid AND session_id <= $2::text::uuid
ORDER BY session_id;

-- name: turns
-- Rows of a session that has no head are there, too: of any generation.
SELECT
    t.session_id, t.last_sequence AS place, t.turn_id, t.enqueue_sequence, t.input, t.context_version, t.idempotency_key,
    t.external_id, t.metadata, t.forked_from, t.regenerates, t.queued_at, t.first_sequence, t.status, t.last_sequence,
    t.attempt, t.deaths, t.released, t.continued, t.next_frame, t.rewritten_input, t.output, t.error, t.usage,
    t.requirements, t.superseded_by, t.parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence,
    t.started_at, t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM turns AS t
LEFT JOIN sessions AS s ON s.session_id = t.session_id
WHERE
    t.session_id >= $1::text::uuid AND t.session_id <= $2::text::uuid
    AND t.generation = coalesce(s.turns_generation, t.generation)
ORDER BY t.session_id, t.last_sequence;

-- name: messages
SELECT
    m.session_id, m.last_sequence AS place, m.message_id, m.turn_id, m.enqueue_sequence, m.ordinal, m.role, m.parts,
    m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM messages AS m
LEFT JOIN sessions AS s ON s.session_id = m.session_id
WHERE
    m.session_id >= $1::text::uuid AND m.session_id <= $2::text::uuid
    AND m.generation = coalesce(s.messages_generation, m.generation)
ORDER BY m.session_id, m.last_sequence;

-- name: replies
-- A reply begins with its sequence; one that is damaged must not stop the audit, so it is not read as JSON here.
SELECT r.session_id, r.place, r.idempotency_key, r.fence, r.reply
FROM (
    SELECT
        session_id, idempotency_key, fence, reply,
        coalesce(
            substring(encode(substring(reply FOR 40), 'escape') FROM '^{"sequence":([0-9]{1,18})[,}]')::bigint, 0
        ) AS place
    FROM command_log
    WHERE session_id >= $1::text::uuid AND session_id <= $2::text::uuid
) AS r
ORDER BY r.session_id, r.place;

-- name: blobs
SELECT sha256, bytes FROM blobs ORDER BY sha256;

-- name: blob_chunks
SELECT content FROM blob_chunks WHERE sha256 = $1 ORDER BY chunk;

-- name: loose_blobs
SELECT
    wanted.session_id, wanted.sha256, EXISTS (SELECT FROM blobs AS b WHERE b.sha256 = wanted.sha256) AS stored
FROM unnest($1::text[], $2::bytea[]) AS wanted (session_id, sha256)
WHERE NOT EXISTS (
    SELECT FROM blob_references AS r WHERE r.session_id = wanted.session_id::uuid AND r.sha256 = wanted.sha256
);

-- name: hashes_at
SELECT wanted.place, e.hash
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS wanted (session_id, sequence, place)
LEFT JOIN events AS e ON e.session_id = wanted.session_id::uuid AND e.sequence = wanted.sequence
ORDER BY wanted.place;

-- name: all_heads
SELECT session_id, last_sequence, head_hash FROM sessions ORDER BY session_id;
