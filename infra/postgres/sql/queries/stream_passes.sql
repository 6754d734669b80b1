-- Tickets and cookies of events streams.

-- name: issue
-- A ticket. Those that have expired go with it, a few at a time, so nobody need sweep.
WITH expired AS (
    DELETE FROM stream_passes
    WHERE digest IN (
        SELECT p.digest FROM stream_passes AS p
        WHERE p.expires_at < clock_timestamp()
        ORDER BY p.expires_at
        LIMIT 20
        FOR UPDATE SKIP LOCKED
    )
)

INSERT INTO stream_passes (
    digest, kind, session_id, user_id, workspace_id, token_hash, access_expires_at, expires_at
)
VALUES (
    $1, 'ticket', $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6),
    clock_timestamp() + make_interval(secs => $7)
);

-- name: spend
-- The ticket ($1) is gone, and a cookie ($2) stands in its place; of two callers one gets it.
WITH spent AS (
    DELETE FROM stream_passes
    WHERE digest = $1 AND kind = 'ticket' AND expires_at > clock_timestamp()
    RETURNING session_id, user_id, workspace_id, token_hash, access_expires_at
)

INSERT INTO stream_passes (digest, kind, session_id, user_id, workspace_id, token_hash, access_expires_at, expires_at)
SELECT
    $2, 'cookie', s.session_id, s.user_id, s.workspace_id, s.token_hash, s.access_expires_at,
    least(s.access_expires_at, clock_timestamp() + make_interval(secs => $3))
FROM spent AS s
RETURNING
    session_id, user_id, workspace_id, token_hash,
    extract(EPOCH FROM expires_at - clock_timestamp())::float8 AS seconds;

-- name: find
SELECT
    session_id, user_id, workspace_id, token_hash,
    extract(EPOCH FROM expires_at - clock_timestamp())::float8 AS seconds
FROM stream_passes
WHERE digest = $1 AND kind = 'cookie' AND expires_at > clock_timestamp();
