-- Rows come as one JSON document, times in microseconds: arrays of many columns cost the client several times more.

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
    superseded_by = u.superseded_by,
    parent_turn_id = u.parent_turn_id,
    interrupt_by = u.interrupt_by,
    interrupt_then = u.interrupt_then,
    checkpoint_sequence = u.checkpoint_sequence,
    started_at = timestamptz 'epoch' + u.started_at * interval '1 microsecond',
    finished_at = timestamptz 'epoch' + u.finished_at * interval '1 microsecond',
    progress = u.progress,
    leg_started_at = timestamptz 'epoch' + u.leg_started_at * interval '1 microsecond',
    expires_at = timestamptz 'epoch' + u.expires_at * interval '1 microsecond'
FROM
    json_to_recordset($1::json) AS u (
        session_id uuid, generation integer, turn_id uuid, status text, last_sequence bigint, attempt integer,
        deaths integer, released boolean, continued boolean, next_frame bigint, rewritten_input json, output text,
        error json, usage json, requirements json, superseded_by uuid, parent_turn_id uuid, interrupt_by text,
        interrupt_then text, checkpoint_sequence bigint, started_at bigint, finished_at bigint, progress json,
        leg_started_at bigint, expires_at bigint
    )
WHERE t.session_id = u.session_id AND t.generation = u.generation AND t.turn_id = u.turn_id;

-- name: save
-- $1 changed rows, $2 new ones.
WITH changed AS (
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
        superseded_by = u.superseded_by,
        parent_turn_id = u.parent_turn_id,
        interrupt_by = u.interrupt_by,
        interrupt_then = u.interrupt_then,
        checkpoint_sequence = u.checkpoint_sequence,
        started_at = timestamptz 'epoch' + u.started_at * interval '1 microsecond',
        finished_at = timestamptz 'epoch' + u.finished_at * interval '1 microsecond',
        progress = u.progress,
        leg_started_at = timestamptz 'epoch' + u.leg_started_at * interval '1 microsecond',
        expires_at = timestamptz 'epoch' + u.expires_at * interval '1 microsecond'
    FROM
        json_to_recordset($1::json) AS u (
            session_id uuid, generation integer, turn_id uuid, status text, last_sequence bigint, attempt integer,
            deaths integer, released boolean, continued boolean, next_frame bigint, rewritten_input json,
            output text, error json, usage json, requirements json, superseded_by uuid, parent_turn_id uuid,
            interrupt_by text, interrupt_then text, checkpoint_sequence bigint, started_at bigint,
            finished_at bigint, progress json, leg_started_at bigint, expires_at bigint
        )
    WHERE t.session_id = u.session_id AND t.generation = u.generation AND t.turn_id = u.turn_id
)
INSERT INTO turns (
    session_id, generation, turn_id, enqueue_sequence, input, context_version, idempotency_key, external_id,
    metadata, forked_from, regenerates, queued_at, first_sequence, status, last_sequence, attempt, deaths, released,
    continued, next_frame, rewritten_input, output, error, usage, requirements, superseded_by, parent_turn_id,
    interrupt_by, interrupt_then, checkpoint_sequence, started_at, finished_at, progress, leg_started_at, expires_at
)
SELECT
    n.session_id, n.generation, n.turn_id, n.enqueue_sequence, n.input, n.context_version, n.idempotency_key,
    n.external_id, n.metadata, n.forked_from, n.regenerates,
    timestamptz 'epoch' + n.queued_at * interval '1 microsecond', n.first_sequence, n.status, n.last_sequence,
    n.attempt, n.deaths, n.released, n.continued, n.next_frame, n.rewritten_input, n.output, n.error, n.usage,
    n.requirements, n.superseded_by, n.parent_turn_id, n.interrupt_by, n.interrupt_then, n.checkpoint_sequence,
    timestamptz 'epoch' + n.started_at * interval '1 microsecond',
    timestamptz 'epoch' + n.finished_at * interval '1 microsecond', n.progress,
    timestamptz 'epoch' + n.leg_started_at * interval '1 microsecond',
    timestamptz 'epoch' + n.expires_at * interval '1 microsecond'
FROM
    json_to_recordset($2::json) AS n (
        session_id uuid, generation integer, turn_id uuid, enqueue_sequence bigint, input json, context_version text,
        idempotency_key text, external_id text, metadata json, forked_from json, regenerates uuid, queued_at bigint,
        first_sequence bigint, status text, last_sequence bigint, attempt integer, deaths integer, released boolean,
        continued boolean, next_frame bigint, rewritten_input json, output text, error json, usage json,
        requirements json, superseded_by uuid, parent_turn_id uuid, interrupt_by text, interrupt_then text,
        checkpoint_sequence bigint, started_at bigint, finished_at bigint, progress json, leg_started_at bigint,
        expires_at bigint
    );
