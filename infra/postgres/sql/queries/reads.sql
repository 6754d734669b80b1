-- Plain reads of the agent database.

-- name: head_of
SELECT last_sequence FROM sessions WHERE session_id = $1::uuid;

-- name: page
SELECT
    session_id::text AS session_id, sequence, event_id::text AS event_id, type, schema_version,
    turn_id::text AS turn_id, created_at, payload, private, salt, payload_digest, private_digest, metadata, hash
FROM events
WHERE session_id = $1::uuid AND sequence > $2
ORDER BY sequence
LIMIT $3;

-- name: wire_page
-- Rows of a page; nothing private is even read. The page is cut here, so that no row is sent for nothing: $3 rows at most,
-- and none behind $4 bytes ($5: what an envelope adds to a payload at least) but the first. First by what they take in the
-- table (four bytes of that may be a header), so that large payloads which lie behind the page are not read for their length. One snapshot, so a page never
-- claims a head that it does not reach.
SELECT
    e.sequence, e.event_id::text AS event_id, e.type, e.schema_version, e.turn_id::text AS turn_id, e.created_at,
    e.payload, s.last_sequence, s.closed_at IS NOT NULL AS closed
FROM sessions AS s
LEFT JOIN LATERAL (
    SELECT
        b.*, sum(octet_length(b.payload::text) + $5::integer)
            OVER (ORDER BY b.sequence ROWS UNBOUNDED PRECEDING) AS so_far
    FROM (
        SELECT
            a.*, sum(pg_column_size(a.payload) - 4 + $5::integer)
                OVER (ORDER BY a.sequence ROWS UNBOUNDED PRECEDING) AS at_least
        FROM (
            SELECT sequence, event_id, type, schema_version, turn_id, created_at, payload
            FROM events
            WHERE session_id = $1::uuid AND sequence > $2::bigint
            ORDER BY sequence
            LIMIT $3::bigint
        ) AS a
    ) AS b
    WHERE b.at_least <= $4::bigint OR b.sequence = $2::bigint + 1
) AS e ON e.so_far <= $4::bigint OR e.sequence = $2::bigint + 1
WHERE s.session_id = $1::uuid
ORDER BY e.sequence;

-- name: stream_page
-- The same page as the bytes of a stream, made here: rows are not taken apart on the way (ADR 0012). $5: what a block adds
-- to payload and twice the type at most; what is made must be `infra.postgres.wire.block` to the byte.
SELECT
    s.last_sequence, s.closed_at IS NOT NULL AS closed, p.events, p.body
FROM sessions AS s
LEFT JOIN LATERAL (
    SELECT
        count(*) AS events,
        convert_to(string_agg(
            'id: ' || c.sequence || E'\nevent: ' || c.type || E'\ndata: {"session_id":"' || $1::text
            || '","sequence":' || c.sequence || ',"event_id":"' || c.event_id || '","type":"' || c.type
            || '","schema_version":' || c.schema_version || coalesce(',"turn_id":"' || c.turn_id || '"', '')
            || ',"created_at":"' || to_char(c.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
            || '","data":' || c.payload::text || E'}\n\n', '' ORDER BY c.sequence
        ), 'UTF8') AS body
    FROM (
        SELECT
            b.*, sum(octet_length(b.payload::text) + 2 * octet_length(b.type) + $5::integer)
                OVER (ORDER BY b.sequence ROWS UNBOUNDED PRECEDING) AS so_far
        FROM (
            SELECT
                a.*, sum(pg_column_size(a.payload) - 4 + $5::integer)
                    OVER (ORDER BY a.sequence ROWS UNBOUNDED PRECEDING) AS at_least
            FROM (
                SELECT sequence, event_id, type, schema_version, turn_id, created_at, payload
                FROM events
                WHERE session_id = $1::text::uuid AND sequence > $2::bigint
                ORDER BY sequence
                LIMIT $3::bigint
            ) AS a
        ) AS b
        WHERE b.at_least <= $4::bigint OR b.sequence = $2::bigint + 1
    ) AS c
    WHERE c.so_far <= $4::bigint OR c.sequence = $2::bigint + 1
) AS p ON true
WHERE s.session_id = $1::text::uuid;

-- name: heads
SELECT
    s.session_id::text AS session_id, s.agent_id, s.component, s.last_sequence, s.head_hash,
    s.active_turn_id::text AS active_turn_id, s.tip_turn_id::text AS tip_turn_id, s.fence, s.queue_state,
    s.next_enqueue_sequence, s.queued_count, s.closing, s.turns_generation, s.messages_generation,
    s.created_at, s.last_event_at, s.closed_at
FROM sessions AS s
WHERE s.session_id = any($1::uuid[]);

-- name: statuses
-- What viewers and gateways ask of many sessions at once.
SELECT
    s.session_id::text AS session_id, s.last_sequence, s.queue_state, s.active_turn_id::text AS active_turn_id,
    t.status AS active_status, coalesce(t.continued, false) AS continued, s.queued_count,
    s.closed_at IS NOT NULL AS closed
FROM sessions AS s
LEFT JOIN turns AS t
    ON t.session_id = s.session_id AND t.generation = s.turns_generation AND t.turn_id = s.active_turn_id
WHERE s.session_id = any($1::uuid[]);

-- name: epoch
SELECT epoch FROM store_meta;

-- name: feed
-- Before the oldest open transaction of the whole server nothing can appear any more. "position > last" would lose
-- events: positions are taken long before their transactions commit.
SELECT
    e.transaction_id::text AS transaction_id, e.position, e.session_id::text AS session_id, e.sequence,
    e.event_id::text AS event_id, e.type, e.schema_version, e.turn_id::text AS turn_id, e.created_at, e.payload,
    e.private, e.salt, e.payload_digest, e.private_digest, e.metadata, e.hash
FROM events AS e
WHERE
    (e.transaction_id, e.position) > ($1::text::xid8, $2::bigint)
    AND e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY e.transaction_id, e.position
LIMIT $3;

-- name: feed_back
-- One place $3 events back in the order across sessions, and when that event was written: by the index alone.
SELECT e.transaction_id::text AS transaction_id, e.position, e.created_at
FROM events AS e
WHERE (e.transaction_id, e.position) < ($1::text::xid8, $2::bigint)
ORDER BY e.transaction_id DESC, e.position DESC
OFFSET $3
LIMIT 1;

-- name: feed_horizon
-- How many transactions lie between the newest and the oldest open one, and how long the oldest has been open, in seconds.
SELECT
    (pg_snapshot_xmax(s.now)::text::bigint - pg_snapshot_xmin(s.now)::text::bigint) AS transactions,
    coalesce((
        SELECT extract(EPOCH FROM max(clock_timestamp() - a.xact_start)) FROM pg_stat_activity AS a
        WHERE a.backend_xid IS NOT NULL
    ), 0)::float8 AS seconds
FROM (SELECT pg_current_snapshot() AS now) AS s;

-- name: open_items
-- Which of those items ($2) the running turn has in the log by now, and of which calls the final result.
SELECT
    t.turn_id::text AS turn_id, t.attempt,
    array(
        SELECT e.payload ->> 'item_id' FROM events AS e
        WHERE
            e.session_id = s.session_id AND e.sequence > t.first_sequence AND e.turn_id = t.turn_id
            AND e.type = 'item.completed' AND e.payload ->> 'item_id' = any($2::text[])
    ) AS completed,
    array(
        SELECT e.payload ->> 'item_id' FROM events AS e
        WHERE
            e.session_id = s.session_id AND e.sequence > t.first_sequence AND e.turn_id = t.turn_id
            AND e.type = 'tool_result.snapshot' AND (e.payload ->> 'final')::boolean
            AND e.payload ->> 'item_id' = any($2::text[])
    ) AS answered
FROM sessions AS s
INNER JOIN turns AS t
    ON t.session_id = s.session_id AND t.generation = s.turns_generation AND t.turn_id = s.active_turn_id
WHERE s.session_id = $1::uuid AND t.status = 'running';

-- name: turn_events
SELECT
    e.session_id::text AS session_id, e.sequence, e.event_id::text AS event_id, e.type, e.schema_version,
    e.turn_id::text AS turn_id, e.created_at, e.payload, e.private, e.salt, e.payload_digest, e.private_digest,
    e.metadata, e.hash
FROM sessions AS s
INNER JOIN turns AS t ON t.session_id = s.session_id AND t.generation = s.turns_generation AND t.turn_id = $2::uuid
INNER JOIN events AS e
    ON
        e.session_id = s.session_id
        AND e.sequence >= t.first_sequence
        AND e.sequence <= t.last_sequence
        AND e.turn_id = t.turn_id
WHERE s.session_id = $1::uuid
ORDER BY e.sequence;

-- name: turn_states
-- What a model's past is made of, for a whole conversation in one statement.
SELECT
    e.session_id::text AS session_id, e.sequence, e.event_id::text AS event_id, e.type, e.schema_version,
    e.turn_id::text AS turn_id, e.created_at, e.payload, e.private, e.salt, e.payload_digest, e.private_digest,
    e.metadata, e.hash
FROM sessions AS s
INNER JOIN turns AS t
    ON t.session_id = s.session_id AND t.generation = s.turns_generation AND t.turn_id = any($2::uuid[])
INNER JOIN events AS e
    ON
        e.session_id = s.session_id
        AND e.sequence >= t.first_sequence
        AND e.sequence <= t.last_sequence
        AND e.turn_id = t.turn_id
        AND e.type IN ('turn.queued', 'turn.input_rewritten', 'checkpoint.reached')
WHERE s.session_id = $1::uuid
ORDER BY e.sequence;
