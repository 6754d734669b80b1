-- What an operator watches, for a projector's metrics: by partial indexes and bounded counts, in the small.

-- name: turns
-- `startable`: waits although nothing keeps it; `ownerless`: runs although no worker holds it.
WITH waiting AS (
    SELECT
        t.queued_at,
        s.queue_state = 'paused' AS stopped,
        s.queue_state = 'open' AND s.active_turn_id IS NULL AND NOT s.closing AS startable
    FROM turns AS t
    INNER JOIN sessions AS s ON s.session_id = t.session_id AND s.turns_generation = t.generation
    WHERE t.status = 'queued'
),
active AS (
    SELECT
        t.status, t.released, t.leg_started_at,
        coalesce(
            least(w.expires_at, c.seen_at + make_interval(secs => w.lease_seconds)) > clock_timestamp(), false
        ) AS live
    FROM turns AS t
    INNER JOIN sessions AS s ON s.session_id = t.session_id AND s.turns_generation = t.generation
    LEFT JOIN claims AS c ON c.session_id = t.session_id
    LEFT JOIN workers AS w ON w.worker_id = c.worker_id
    WHERE t.status IN ('running', 'paused')
)
SELECT
    w.waiting, w.stopped, w.startable_seconds, a.running, a.paused, a.ownerless, a.longest_seconds
FROM (
    SELECT
        count(*) AS waiting,
        count(*) FILTER (WHERE stopped) AS stopped,
        coalesce(extract(EPOCH FROM clock_timestamp() - min(queued_at) FILTER (WHERE startable)), 0)::float8
            AS startable_seconds
    FROM waiting
) AS w
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE status = 'running') AS running,
        count(*) FILTER (WHERE status = 'paused') AS paused,
        count(*) FILTER (WHERE status = 'running' AND NOT live) AS ownerless,
        coalesce(
            extract(EPOCH FROM clock_timestamp() - min(leg_started_at) FILTER (WHERE status = 'running')), 0
        )::float8 AS longest_seconds
    FROM active
) AS a;

-- name: horizon
-- The oldest transaction that is open on the whole server, and the one after the newest that has ended: equal where none
-- holds anything back.
SELECT pg_snapshot_xmin(s.now)::text AS oldest, pg_snapshot_xmax(s.now)::text AS next
FROM (SELECT pg_current_snapshot() AS now) AS s;

-- name: lag
-- What lies after a kept place of the feed, counted up to $2.
SELECT
    count(*) AS events,
    coalesce(extract(EPOCH FROM clock_timestamp() - min(b.created_at)), 0)::float8 AS seconds
FROM feed_checkpoints AS c
CROSS JOIN LATERAL (
    SELECT e.created_at FROM events AS e
    WHERE (e.transaction_id, e.position) > (c.transaction_id, c.position)
    LIMIT $2
) AS b
WHERE c.name = $1;
