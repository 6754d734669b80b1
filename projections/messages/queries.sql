-- name: of_turns
SELECT
    m.session_id::text AS session_id, m.message_id::text AS message_id, m.turn_id::text AS turn_id, m.enqueue_sequence,
    m.ordinal, m.role, m.parts, m.items, m.status, m.first_sequence, m.last_sequence, m.created_at
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS wanted (session_id, generation, enqueue_sequence)
INNER JOIN messages AS m
    ON
        m.session_id = wanted.session_id::uuid
        AND m.generation = wanted.generation
        AND m.enqueue_sequence = wanted.enqueue_sequence
ORDER BY m.session_id, m.enqueue_sequence, m.ordinal;

-- name: save
-- Rows come as one JSON document, times in microseconds.
INSERT INTO messages AS m (
    session_id, generation, message_id, turn_id, enqueue_sequence, ordinal, role, parts, items, status, first_sequence,
    last_sequence, created_at
)
SELECT
    n.session_id, n.generation, n.message_id, n.turn_id, n.enqueue_sequence, n.ordinal, n.role, n.parts, n.items, n.status,
    n.first_sequence, n.last_sequence, timestamptz 'epoch' + n.created_at * interval '1 microsecond'
FROM
    json_to_recordset($1::json) AS n (
        session_id uuid, generation integer, message_id uuid, turn_id uuid, enqueue_sequence bigint, ordinal integer,
        role text, parts json, items json, status text, first_sequence bigint, last_sequence bigint, created_at bigint
    )
ON CONFLICT (session_id, generation, message_id) DO UPDATE SET
    parts = excluded.parts,
    items = excluded.items,
    status = excluded.status,
    last_sequence = excluded.last_sequence;
