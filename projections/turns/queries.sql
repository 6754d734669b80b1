-- name: insert
INSERT INTO turns (
    session_id, generation, turn_id, enqueue_sequence, input, context_version, idempotency_key, external_id,
    metadata, forked_from, regenerates, queued_at, first_sequence, status, last_sequence, attempt, deaths, released,
    continued, next_frame, rewritten_input, output, error, usage, requirements, superseded_by, parent_turn_id,
    interrupt_by, interrupt_then, checkpoint_sequence, started_at, finished_at,
    progress, leg_started_at, expires_at
)
SELECT
    n.session_id::uuid, n.generation, n.turn_id::uuid, n.enqueue_sequence, n.input, n.context_version,
    n.idempotency_key, n.external_id, n.metadata, n.forked_from, n.regenerates::uuid, n.queued_at, n.first_sequence,
    n.status, n.last_sequence, n.attempt, n.deaths, n.released, n.continued, n.next_frame, n.rewritten_input,
    n.output, n.error, n.usage, n.requirements, n.superseded_by::uuid, n.parent_turn_id::uuid, n.interrupt_by,
    n.interrupt_then, n.checkpoint_sequence, n.started_at, n.finished_at, n.progress, n.leg_started_at,
    n.expires_at
FROM
    unnest(
        $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::json[], $6::text[], $7::text[], $8::text[],
        $9::json[], $10::json[], $11::text[], $12::timestamptz[], $13::bigint[], $14::text[], $15::bigint[],
        $16::bigint[], $17::bigint[], $18::boolean[], $19::boolean[], $20::bigint[], $21::json[], $22::text[],
        $23::json[], $24::json[], $25::json[], $26::text[], $27::text[], $28::text[], $29::text[], $30::bigint[],
        $31::timestamptz[], $32::timestamptz[], $33::json[], $34::timestamptz[], $35::timestamptz[]
    ) AS n (
        session_id, generation, turn_id, enqueue_sequence, input, context_version, idempotency_key, external_id,
        metadata, forked_from, regenerates, queued_at, first_sequence, status, last_sequence, attempt, deaths,
        released, continued, next_frame, rewritten_input, output, error, usage, requirements, superseded_by,
        parent_turn_id, interrupt_by, interrupt_then, checkpoint_sequence, started_at, finished_at, progress,
        leg_started_at, expires_at
    );

-- name: update
UPDATE turns AS t SET
    status = u.status,
    last_sequence = u.last_sequence,
    attempt = u.attempt,
    deaths = u.deaths,
    released = u.released,
    continued = u.continued,
    next_frame = u.next_frame,
    rewritten_input = u.rewritten_input,
    output = u.output,
    error = u.error,
    usage = u.usage,
    requirements = u.requirements,
    superseded_by = u.superseded_by::uuid,
    parent_turn_id = u.parent_turn_id::uuid,
    interrupt_by = u.interrupt_by,
    interrupt_then = u.interrupt_then,
    checkpoint_sequence = u.checkpoint_sequence,
    started_at = u.started_at,
    finished_at = u.finished_at,
    progress = u.progress,
    leg_started_at = u.leg_started_at,
    expires_at = u.expires_at
FROM
    unnest(
        $1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[],
        $9::boolean[], $10::bigint[], $11::json[], $12::text[], $13::json[], $14::json[], $15::json[], $16::text[],
        $17::text[], $18::text[], $19::text[], $20::bigint[], $21::timestamptz[], $22::timestamptz[],
        $23::json[], $24::timestamptz[], $25::timestamptz[]
    ) AS u (
        session_id, generation, turn_id, status, last_sequence, attempt, deaths, released, continued, next_frame,
        rewritten_input, output, error, usage, requirements, superseded_by, parent_turn_id, interrupt_by,
        interrupt_then, checkpoint_sequence, started_at, finished_at, progress, leg_started_at, expires_at
    )
WHERE t.session_id = u.session_id::uuid AND t.generation = u.generation AND t.turn_id = u.turn_id::uuid;
