-- Workers and their claims. Nothing here takes a session's lock, and nothing here appends.

-- name: heartbeat
-- Renews an expired row too: a claim that nobody has taken over is still ours. A claim is lost when another fence stands.
-- Silences come as durations, since the clocks of workers may be anything.
WITH renewed AS (
    INSERT INTO workers AS w (worker_id, lease_seconds, expires_at)
    VALUES ($1::uuid, $2::float8, clock_timestamp() + make_interval(secs => $2::float8))
    ON CONFLICT (worker_id) DO UPDATE SET lease_seconds = excluded.lease_seconds, expires_at = excluded.expires_at
),
held AS (
    SELECT
        h.session_id::uuid AS session_id, h.turn_id::uuid AS turn_id, h.fence,
        clock_timestamp() - make_interval(secs => h.silent_seconds) AS last_frame_at
    FROM unnest($3::text[], $4::text[], $5::bigint[], $6::float8[])
        AS h (session_id, turn_id, fence, silent_seconds)
),
seen AS (
    UPDATE claims AS c SET last_frame_at = greatest(c.last_frame_at, h.last_frame_at), seen_at = clock_timestamp()
    FROM held AS h
    WHERE c.session_id = h.session_id AND c.turn_id = h.turn_id AND c.fence = h.fence
    RETURNING c.session_id, c.turn_id
)
SELECT
    h.turn_id::text AS turn_id,
    seen.turn_id IS NULL AS lost,
    coalesce(t.interrupt_then IS NOT NULL, false) AS interrupted
FROM held AS h
LEFT JOIN seen ON seen.session_id = h.session_id AND seen.turn_id = h.turn_id
LEFT JOIN sessions AS s ON s.session_id = h.session_id
LEFT JOIN turns AS t ON t.session_id = h.session_id AND t.generation = s.turns_generation AND t.turn_id = h.turn_id;

-- name: unregister
-- Ends the lease at once: what this worker still held may be taken over.
DELETE FROM workers WHERE worker_id = $1::uuid;

-- name: collect
-- Rows of processes that have been dead for long and hold nothing.
DELETE FROM workers AS w
WHERE
    w.expires_at < clock_timestamp() - make_interval(secs => $1::float8)
    AND NOT EXISTS (SELECT FROM claims AS c WHERE c.worker_id = w.worker_id);

-- name: claimable
-- A plain read: row locks before the advisory lock would let the feed reorder. First comes what has waited longest
-- since its session was last served, so that a long queue in one session is not in the way of others.
-- $2: only sessions of these agents (null: of any); $3: whether dead claims count; $4, $5: seconds after which a leg,
-- or a silence outside a tool, is too long.
-- `orphan`: a running turn that its worker has handed back, or whose worker is gone; a runtime that can be asked is asked
-- about it first.
SELECT found.session_id::text AS session_id, found.agent_id, found.orphan::text AS orphan FROM (
    SELECT q.session_id, min(s.agent_id) AS agent_id, null::uuid AS orphan,
        greatest(min(q.queued_at), max(tip.finished_at)) AS since
    FROM turns AS q
    INNER JOIN sessions AS s ON s.session_id = q.session_id AND s.turns_generation = q.generation
    LEFT JOIN turns AS tip
        ON tip.session_id = q.session_id AND tip.generation = q.generation AND tip.turn_id = s.tip_turn_id
    WHERE
        q.status = 'queued' AND s.active_turn_id IS NULL AND s.queue_state = 'open' AND NOT s.closing
        AND ($2::text[] IS NULL OR s.agent_id = any($2::text[]))
    GROUP BY q.session_id
    UNION ALL
    SELECT
        a.session_id, s.agent_id,
        CASE
            WHEN a.status = 'running' AND (a.released OR NOT l.live) THEN a.turn_id
        END AS orphan,
        greatest(a.queued_at, a.leg_started_at) AS since
    FROM turns AS a
    INNER JOIN sessions AS s ON s.session_id = a.session_id AND s.turns_generation = a.generation
    LEFT JOIN claims AS c ON c.session_id = a.session_id
    LEFT JOIN workers AS w ON w.worker_id = c.worker_id
    CROSS JOIN LATERAL (
        SELECT coalesce(
            least(w.expires_at, c.seen_at + make_interval(secs => w.lease_seconds)) > clock_timestamp(), false
        ) AS live
    ) AS l
    WHERE
        a.status IN ('running', 'paused')
        AND ($2::text[] IS NULL OR s.agent_id = any($2::text[]))
        AND (
            (a.status = 'paused' AND (a.continued OR a.expires_at < clock_timestamp()))
            OR (a.status = 'running' AND a.released)
            OR (a.status = 'running' AND $3::boolean AND NOT l.live)
            OR (a.status = 'running' AND a.leg_started_at < clock_timestamp() - make_interval(secs => $4::float8))
            OR (
                a.status = 'running' AND c.last_frame_at < clock_timestamp() - make_interval(secs => $5::float8)
                AND coalesce(a.progress::text NOT LIKE '%"started":true%', true)
            )
        )
) AS found
ORDER BY found.since
LIMIT $1;

-- name: announce
INSERT INTO agents (agent_id, name, component, details, announced_at)
SELECT a.agent_id, a.name, a.component, a.details, now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS a (agent_id, name, component, details)
ON CONFLICT (agent_id) DO UPDATE SET
    name = excluded.name, component = excluded.component, details = excluded.details,
    announced_at = excluded.announced_at;

-- name: agents
SELECT agent_id, name, component, details, announced_at FROM agents ORDER BY announced_at DESC, agent_id;
