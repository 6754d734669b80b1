-- name: made
-- The projector makes the table when it runs for the first time.
SELECT to_regclass('feed.hook_runs') IS NOT NULL AS made;

-- name: runs
-- The newest first; $2: only of this kind; $4 and $5: those before that one.
SELECT
    r.job_id::text AS job_id, r.session_id::text AS session_id, r.turn_id::text AS turn_id, r.hook, r.kind, r.status,
    r.result, r.error, r.attempts, r.scheduled_at, r.finished_at
FROM feed.hook_runs AS r
WHERE
    r.session_id = any($1::text []::uuid [])
    AND ($2::text IS NULL OR r.kind = $2)
    AND ($4::timestamptz IS NULL OR (r.scheduled_at, r.job_id) < ($4::timestamptz, $5::text::uuid))
ORDER BY r.scheduled_at DESC, r.job_id DESC
LIMIT $3;
