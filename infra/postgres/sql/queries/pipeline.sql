-- The statements of one command group, in the order in which a transaction runs them.

-- name: try_lock
-- The first statement, before anything takes a transaction id: else a lock that is got late would give its events an
-- older transaction id than events of the same session that were committed meanwhile, and the feed would reorder them.
SELECT pg_try_advisory_xact_lock(key) AS locked FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (key, place)
ORDER BY place;

-- name: wait_for_lock
SELECT pg_advisory_xact_lock($1::bigint);

-- name: load_heads
-- A statement after the lock's: a statement's snapshot is older than its wait for a lock. One row a session and owner
-- ($2, null where the group's commands name none), also where there is no session yet, since it tells the time: decisions go by this clock alone, as leases do, whatever the hosts' clocks say.
SELECT
    wanted.session_id, clock_timestamp() AS now, s.session_id IS NOT NULL AS known, s.agent_id, s.component, s.last_sequence, s.head_hash,
    s.active_turn_id::text AS active_turn_id, s.tip_turn_id::text AS tip_turn_id, s.fence, s.queue_state,
    s.next_enqueue_sequence, s.queued_count, s.closing, s.turns_generation, s.messages_generation,
    s.created_at, s.last_event_at, s.closed_at,
    c.turn_id::text AS claim_turn_id, c.fence AS claim_fence, c.worker_id::text AS claim_worker_id,
    coalesce(
        least(w.expires_at, c.seen_at + make_interval(secs => w.lease_seconds)) > clock_timestamp(), false
    ) AS claim_live,
    extract(EPOCH FROM clock_timestamp() - c.last_frame_at)::float8 AS claim_silent_seconds,
    wanted.owner,
    CASE
        WHEN wanted.owner IS NOT NULL
            THEN (SELECT count(*) FROM open_turns AS o WHERE o.owner = wanted.owner::uuid)
    END AS open_turns
FROM unnest($1::text[], $2::text[]) AS wanted (session_id, owner)
LEFT JOIN sessions AS s ON s.session_id = wanted.session_id::uuid
LEFT JOIN claims AS c ON c.session_id = s.session_id
LEFT JOIN workers AS w ON w.worker_id = c.worker_id;

-- name: forget_ended
-- Of owners at their quota: what has ended and still counts, as a process of an older release leaves it.
WITH gone AS (
    DELETE FROM open_turns AS o USING sessions AS s, turns AS t
    WHERE
        o.owner = ANY($1::text[]::uuid[]) AND s.session_id = o.session_id AND t.session_id = o.session_id
        AND t.generation = s.turns_generation AND t.turn_id = o.turn_id
        AND t.status NOT IN ('queued', 'running', 'paused')
    RETURNING o.owner
)
SELECT owner::text AS owner, count(*) AS ended FROM gone GROUP BY gone.owner;

-- name: load_turns
-- $1 sessions with $2 how many of their lowest queued turns; of each also the active turn and the one that this
-- regenerates. ($3, $4) turns by id, ($5, $6) by external id.
WITH heads AS (
    SELECT s.session_id, s.turns_generation AS generation, s.active_turn_id, wanted.queued
    FROM unnest($1::text[], $2::bigint[]) AS wanted (session_id, queued)
    INNER JOIN sessions AS s ON s.session_id = wanted.session_id::uuid
),
active AS (
    SELECT t.session_id, t.generation, t.turn_id, t.regenerates
    FROM heads AS h
    INNER JOIN turns AS t
        ON t.session_id = h.session_id AND t.generation = h.generation AND t.turn_id = h.active_turn_id
),
named AS (
    SELECT session_id, generation, turn_id FROM active
    UNION
    SELECT session_id, generation, regenerates FROM active WHERE regenerates IS NOT NULL
    UNION
    SELECT h.session_id, h.generation, by_id.turn_id::uuid
    FROM unnest($3::text[], $4::text[]) AS by_id (session_id, turn_id)
    INNER JOIN heads AS h ON h.session_id = by_id.session_id::uuid
    UNION
    SELECT h.session_id, h.generation, t.turn_id
    FROM unnest($5::text[], $6::text[]) AS by_name (session_id, external_id)
    INNER JOIN heads AS h ON h.session_id = by_name.session_id::uuid
    INNER JOIN turns AS t
        ON t.session_id = h.session_id AND t.generation = h.generation AND t.external_id = by_name.external_id
    UNION
    SELECT h.session_id, h.generation, q.turn_id
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT t.turn_id FROM turns AS t
        WHERE t.session_id = h.session_id AND t.generation = h.generation AND t.status = 'queued'
        ORDER BY t.enqueue_sequence
        LIMIT h.queued
    ) AS q
    WHERE h.queued > 0
)
SELECT
    t.session_id::text AS session_id, t.turn_id::text AS turn_id, t.enqueue_sequence, t.status, t.input,
    t.context_version, t.idempotency_key, t.external_id, t.metadata, t.forked_from, t.regenerates::text AS regenerates,
    t.queued_at, t.first_sequence, t.last_sequence, t.attempt, t.deaths, t.released, t.continued, t.next_frame,
    t.rewritten_input, t.output, t.error, t.usage, t.requirements, t.superseded_by::text AS superseded_by,
    t.parent_turn_id::text AS parent_turn_id, t.interrupt_by, t.interrupt_then, t.checkpoint_sequence, t.started_at,
    t.finished_at, t.progress, t.leg_started_at, t.expires_at
FROM named AS n
INNER JOIN turns AS t ON t.session_id = n.session_id AND t.generation = n.generation AND t.turn_id = n.turn_id;

-- name: load_replies
SELECT l.session_id::text AS session_id, l.idempotency_key, l.fingerprint, l.fence, l.ordinal, l.reply
FROM unnest($1::text[], $2::text[]) AS wanted (session_id, idempotency_key)
INNER JOIN command_log AS l
    ON l.session_id = wanted.session_id::uuid AND l.idempotency_key = wanted.idempotency_key;

-- name: generations
SELECT name, generation, version FROM projection_generations;

-- name: write
-- Everything that is not a read model, in one round trip. Rows come as JSON documents, times in microseconds, since arrays
-- of many columns cost the client several times more; what was hashed (payloads, private parts) and replies come as
-- arrays. The parts touch different tables, so their order among each other does not matter; events are inserted in
-- theirs, which gives them ascending positions.
WITH heads AS (
    INSERT INTO sessions AS s (
        session_id, agent_id, component, last_sequence, head_hash, active_turn_id, tip_turn_id, fence, queue_state,
        next_enqueue_sequence, queued_count, closing, turns_generation, messages_generation, created_at, last_event_at,
        closed_at
    )
    SELECT
        h.session_id, h.agent_id, h.component, h.last_sequence, h.head_hash, h.active_turn_id, h.tip_turn_id, h.fence,
        h.queue_state, h.next_enqueue_sequence, h.queued_count, h.closing, h.turns_generation, h.messages_generation,
        timestamptz 'epoch' + h.created_at * interval '1 microsecond',
        timestamptz 'epoch' + h.last_event_at * interval '1 microsecond',
        timestamptz 'epoch' + h.closed_at * interval '1 microsecond'
    FROM
        json_to_recordset($1::json) AS h (
            session_id uuid, agent_id text, component text, last_sequence bigint, head_hash bytea, active_turn_id uuid,
            tip_turn_id uuid, fence bigint, queue_state text, next_enqueue_sequence bigint, queued_count integer,
            closing boolean, turns_generation integer, messages_generation integer, created_at bigint,
            last_event_at bigint, closed_at bigint
        )
    ON CONFLICT (session_id) DO UPDATE SET
        last_sequence = excluded.last_sequence,
        head_hash = excluded.head_hash,
        active_turn_id = excluded.active_turn_id,
        tip_turn_id = excluded.tip_turn_id,
        fence = excluded.fence,
        queue_state = excluded.queue_state,
        next_enqueue_sequence = excluded.next_enqueue_sequence,
        queued_count = excluded.queued_count,
        closing = excluded.closing,
        last_event_at = excluded.last_event_at,
        closed_at = excluded.closed_at
),
replies AS (
    INSERT INTO command_log AS l (session_id, idempotency_key, fingerprint, fence, ordinal, reply)
    SELECT r.session_id, r.idempotency_key, r.fingerprint, r.fence, r.ordinal, r.reply
    FROM
        ROWS FROM (
            json_to_recordset($2::json)
            AS (session_id uuid, idempotency_key text, fingerprint bytea, fence bigint, ordinal bigint),
            unnest($3::bytea[])
        ) AS r (session_id, idempotency_key, fingerprint, fence, ordinal, reply)
    ON CONFLICT (session_id, idempotency_key) DO UPDATE SET
        fingerprint = excluded.fingerprint,
        fence = excluded.fence,
        ordinal = excluded.ordinal,
        reply = excluded.reply
),
opened AS (
    INSERT INTO claims AS c (session_id, turn_id, fence, worker_id, last_frame_at)
    SELECT n.session_id, n.turn_id, n.fence, n.worker_id, clock_timestamp()
    FROM json_to_recordset($4::json) AS n (session_id uuid, turn_id uuid, fence bigint, worker_id uuid)
    ON CONFLICT (session_id) DO UPDATE SET
        turn_id = excluded.turn_id,
        fence = excluded.fence,
        worker_id = excluded.worker_id,
        last_frame_at = excluded.last_frame_at,
        seen_at = excluded.last_frame_at
),
ended AS (
    DELETE FROM claims USING unnest($5::text[]) AS gone (session_id) WHERE claims.session_id = gone.session_id::uuid
),
counted AS (
    INSERT INTO open_turns (session_id, turn_id, owner)
    SELECT o.session_id, o.turn_id, o.owner
    FROM json_to_recordset($9::json) AS o (session_id uuid, turn_id uuid, owner uuid)
),
over AS (
    DELETE FROM open_turns AS o USING unnest($10::text[], $11::text[]) AS gone (session_id, turn_id)
    WHERE o.session_id = gone.session_id::uuid AND o.turn_id = gone.turn_id::uuid
)
INSERT INTO events (
    session_id, sequence, event_id, type, schema_version, turn_id, salt, payload_digest, private_digest, metadata,
    created_at, hash, payload, private
)
SELECT
    e.session_id, e.sequence, e.event_id, e.type, e.schema_version, e.turn_id, e.salt, e.payload_digest,
    e.private_digest, e.metadata, timestamptz 'epoch' + e.created_at * interval '1 microsecond', e.hash, e.payload,
    e.private
FROM
    ROWS FROM (
        json_to_recordset($6::json) AS (
            session_id uuid, sequence bigint, event_id uuid, type text, schema_version integer, turn_id uuid,
            salt bytea, payload_digest bytea, private_digest bytea, metadata json, created_at bigint, hash bytea
        ),
        unnest($7::json[]),
        unnest($8::bytea[])
    ) WITH ORDINALITY AS e (
        session_id, sequence, event_id, type, schema_version, turn_id, salt, payload_digest, private_digest, metadata,
        created_at, hash, payload, private, place
    )
ORDER BY e.place;

-- name: save_replies
-- Of commands that were accepted and had nothing to write.
INSERT INTO command_log AS l (session_id, idempotency_key, fingerprint, fence, ordinal, reply)
SELECT r.session_id, r.idempotency_key, r.fingerprint, r.fence, r.ordinal, r.reply
FROM
    ROWS FROM (
        json_to_recordset($1::json)
        AS (session_id uuid, idempotency_key text, fingerprint bytea, fence bigint, ordinal bigint),
        unnest($2::bytea[])
    ) AS r (session_id, idempotency_key, fingerprint, fence, ordinal, reply)
ON CONFLICT (session_id, idempotency_key) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    fence = excluded.fence,
    ordinal = excluded.ordinal,
    reply = excluded.reply;
