-- name: scheduled
INSERT INTO hook_runs (job_id, session_id, turn_id, hook, kind, status, sequence, scheduled_at)
SELECT
    n.job_id, n.session_id, n.turn_id, n.hook, n.kind, 'scheduled', n.sequence,
    timestamptz 'epoch' + n.at * interval '1 microsecond'
FROM
    json_to_recordset($1::json) AS n (
        job_id uuid, session_id uuid, turn_id uuid, hook text, kind text, sequence bigint, at bigint
    )
ON CONFLICT (job_id) DO NOTHING;

-- name: ended
UPDATE hook_runs AS r SET
    status = n.status, result = n.result, error = n.error, attempts = n.attempts,
    finished_at = timestamptz 'epoch' + n.at * interval '1 microsecond'
FROM
    json_to_recordset($1::json) AS n (
        job_id uuid, session_id uuid, status text, result json, error text, attempts integer, at bigint
    )
WHERE r.job_id = n.job_id AND r.session_id = n.session_id AND r.finished_at IS NULL;

-- name: erase
UPDATE hook_runs SET result = NULL, error = NULL WHERE session_id = $1::uuid;
