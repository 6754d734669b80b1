-- Background hook jobs. `schedule`, `ended` and `forget` run in appending transactions, under the session's lock.

-- name: schedule
INSERT INTO hook_jobs (job_id, session_id, turn_id, agent_id, hook, due_at)
SELECT n.job_id, n.session_id, n.turn_id, n.agent_id, n.hook, clock_timestamp() + make_interval(secs => $2::float8)
FROM json_to_recordset($1::json) AS n (job_id uuid, session_id uuid, turn_id uuid, agent_id text, hook text)
ON CONFLICT (job_id) DO NOTHING;

-- name: ended
DELETE FROM hook_jobs WHERE job_id = any($1::uuid[]);

-- name: forget
DELETE FROM hook_jobs WHERE session_id = $1::uuid;

-- name: begin
-- One try of a job, unless somebody holds it or it is over.
UPDATE hook_jobs SET
    attempts = attempts + 1,
    held_until = clock_timestamp() + make_interval(secs => $2::float8),
    due_at = clock_timestamp() + make_interval(secs => $2::float8)
WHERE job_id = $1::uuid AND (held_until IS NULL OR held_until < clock_timestamp())
RETURNING session_id::text AS session_id, turn_id::text AS turn_id, agent_id, hook, attempts;

-- name: hold
-- Still under way; nothing where another one has begun since.
UPDATE hook_jobs SET
    held_until = clock_timestamp() + make_interval(secs => $3::float8),
    due_at = clock_timestamp() + make_interval(secs => $3::float8)
WHERE job_id = $1::uuid AND attempts = $2
RETURNING job_id;

-- name: let_go
-- Not done: due again in so many seconds. $4: the try does not count.
UPDATE hook_jobs SET
    held_until = NULL, due_at = clock_timestamp() + make_interval(secs => $3::float8), attempts = attempts - $4::integer
WHERE job_id = $1::uuid AND attempts = $2;

-- name: due
-- To be told again, and not before $2 seconds again if that is lost too. Several workers may look at once.
UPDATE hook_jobs AS j SET due_at = clock_timestamp() + make_interval(secs => $2::float8)
FROM (
    SELECT job_id FROM hook_jobs WHERE due_at < clock_timestamp() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
) AS d
WHERE j.job_id = d.job_id
RETURNING j.job_id::text AS job_id, j.agent_id, j.hook;

-- name: open
SELECT
    count(*) AS open,
    coalesce(extract(EPOCH FROM clock_timestamp() - min(scheduled_at)), 0)::float8 AS oldest_seconds
FROM hook_jobs;
