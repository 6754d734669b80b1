-- name: save
-- Counts are added, everything else is as of the newest event; what is retried later (parked events) never takes it back.
INSERT INTO session_overview AS o (
    session_id, agent_id, component, created_at, last_event_at, last_sequence, closed_at, queued, completed, failed,
    interrupted, cancelled, last_turn_id, last_input
)
SELECT
    n.session_id, coalesce(n.agent_id, ''), coalesce(n.component, 'agent'),
    timestamptz 'epoch' + n.first_at * interval '1 microsecond',
    timestamptz 'epoch' + n.last_at * interval '1 microsecond', n.last_sequence,
    timestamptz 'epoch' + n.closed_at * interval '1 microsecond', n.queued, n.completed, n.failed, n.interrupted,
    n.cancelled, n.last_turn_id, n.last_input
FROM
    json_to_recordset($1::json) AS n (
        session_id uuid, agent_id text, component text, first_at bigint, last_at bigint, last_sequence bigint,
        closed_at bigint, queued bigint, completed bigint, failed bigint, interrupted bigint, cancelled bigint,
        last_turn_id uuid, last_input text
    )
ON CONFLICT (session_id) DO UPDATE SET
    agent_id = coalesce(nullif(excluded.agent_id, ''), o.agent_id),
    component = CASE WHEN excluded.agent_id <> '' THEN excluded.component ELSE o.component END,
    created_at = least(o.created_at, excluded.created_at),
    last_event_at = greatest(o.last_event_at, excluded.last_event_at),
    last_sequence = greatest(o.last_sequence, excluded.last_sequence),
    closed_at = coalesce(o.closed_at, excluded.closed_at),
    queued = o.queued + excluded.queued,
    completed = o.completed + excluded.completed,
    failed = o.failed + excluded.failed,
    interrupted = o.interrupted + excluded.interrupted,
    cancelled = o.cancelled + excluded.cancelled,
    last_turn_id = CASE
        WHEN excluded.last_sequence > o.last_sequence THEN coalesce(excluded.last_turn_id, o.last_turn_id)
        ELSE o.last_turn_id
    END,
    last_input = CASE
        WHEN excluded.last_sequence > o.last_sequence THEN coalesce(excluded.last_input, o.last_input)
        ELSE o.last_input
    END;

-- name: erase
UPDATE session_overview SET last_input = '' WHERE session_id = $1::uuid;
