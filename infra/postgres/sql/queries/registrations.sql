-- name: begin
-- A new registration, unless the owner's name is taken: then no row.
INSERT INTO registrations (
    session_id, user_id, workspace_id, external_id, agent_id, fingerprint, state, title, context_version, metadata
)
VALUES ($1, $2, $3, $4, $5, $6, 'starting', $7, $8, $9)
ON CONFLICT DO NOTHING
RETURNING
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at;

-- name: named
-- What the owner calls that: by name first, then by the session's own id.
SELECT
    0 AS rank,
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at
FROM registrations
WHERE user_id = $1 AND workspace_id = $2 AND external_id = $3 AND state <> 'failed'
UNION ALL
SELECT
    1 AS rank,
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at
FROM registrations
WHERE session_id = $4 AND user_id = $1 AND workspace_id = $2 AND state <> 'failed'
ORDER BY rank
LIMIT 1;

-- name: named_many
-- The same for many who ask at once; `place` counts them from 1.
SELECT DISTINCT ON (a.place)
    a.place,
    r.session_id,
    r.user_id,
    r.workspace_id,
    r.external_id,
    r.agent_id,
    r.fingerprint,
    r.state,
    r.token_hash,
    r.token_expires_at,
    r.title,
    r.starred,
    r.context_version,
    r.metadata,
    r.created_at,
    r.changed_at
FROM unnest($1::text [], $2::text [], $3::text [], $4::uuid []) WITH ORDINALITY
    AS a (user_id, workspace_id, name, session_id, place)
CROSS JOIN LATERAL (
    SELECT 0 AS rank, n.* FROM registrations AS n
    WHERE n.user_id = a.user_id AND n.workspace_id = a.workspace_id AND n.external_id = a.name AND n.state <> 'failed'
    UNION ALL
    SELECT 1 AS rank, n.* FROM registrations AS n
    WHERE n.session_id = a.session_id AND n.user_id = a.user_id AND n.workspace_id = a.workspace_id
        AND n.state <> 'failed'
) AS r
ORDER BY a.place, r.rank;

-- name: get_many
SELECT
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at,
    extract(EPOCH FROM token_expires_at - clock_timestamp())::float8 AS token_seconds
FROM registrations
WHERE session_id = any($1::uuid []);

-- name: get
SELECT
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at,
    extract(EPOCH FROM token_expires_at - clock_timestamp())::float8 AS token_seconds
FROM registrations
WHERE session_id = $1;

-- name: activate
-- The agent service has the session. A new token makes the one before it void.
UPDATE registrations
SET
    state = 'active',
    token_hash = coalesce($2, token_hash),
    token_expires_at = CASE
        WHEN $2 IS NULL THEN token_expires_at ELSE clock_timestamp() + make_interval(secs => $3)
    END,
    changed_at = clock_timestamp()
WHERE session_id = $1 AND state IN ('starting', 'active')
RETURNING
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at;

-- name: fail
-- The agent service refused the session: its name is free again.
UPDATE registrations
SET state = 'failed', changed_at = clock_timestamp()
WHERE session_id = $1 AND state = 'starting';

-- name: page
-- The owner's sessions, newest first.
SELECT
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at
FROM registrations
WHERE user_id = $1 AND workspace_id = $2 AND state = 'active' AND ($3::uuid IS NULL OR session_id < $3)
ORDER BY session_id DESC
LIMIT $4;

-- name: ids
SELECT session_id FROM registrations
WHERE user_id = $1 AND workspace_id = $2 AND state = 'active'
ORDER BY session_id DESC
LIMIT $3;

-- name: change
-- Each field with a flag that says whether it was sent: null is a value.
UPDATE registrations
SET
    title = CASE WHEN $2 THEN $3 ELSE title END,
    starred = CASE WHEN $4 THEN $5 ELSE starred END,
    context_version = CASE WHEN $6 THEN $7 ELSE context_version END,
    changed_at = clock_timestamp()
WHERE session_id = $1 AND state = 'active'
RETURNING
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at;

-- name: delete
-- The token stays: with it the rest of the events can still be read.
UPDATE registrations
SET state = 'deleted', changed_at = clock_timestamp()
WHERE session_id = $1 AND state = 'active'
RETURNING session_id;

-- name: delete_and_erase
UPDATE registrations
SET state = 'deleted', erase = true, title = NULL, metadata = NULL, changed_at = clock_timestamp()
WHERE session_id = $1 AND state = 'active'
RETURNING session_id;

-- name: erasing
SELECT session_id FROM registrations WHERE session_id = $1 AND erase;

-- name: close
UPDATE registrations
SET closed = true
WHERE session_id = $1 AND state = 'deleted';

-- name: unsettled
-- What a crash between the two databases left behind.
SELECT
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at
FROM registrations
WHERE
    (state = 'starting' OR (state = 'deleted' AND NOT closed))
    AND changed_at < clock_timestamp() - make_interval(secs => $1)
ORDER BY changed_at
LIMIT $2;

-- name: ping
SELECT 1 AS alive;

-- name: changed
-- Of those sessions what has changed since then, and the time of this look. Transactions end in another order than they
-- read the clock, hence the margin.
SELECT
    session_id,
    user_id,
    workspace_id,
    external_id,
    agent_id,
    fingerprint,
    state,
    token_hash,
    token_expires_at,
    title,
    starred,
    context_version,
    metadata,
    created_at,
    changed_at
FROM registrations
WHERE changed_at > clock_timestamp() - make_interval(secs => $1) AND session_id = any($2::uuid[]);
