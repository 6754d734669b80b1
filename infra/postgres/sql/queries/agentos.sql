-- What the AgentOS routes ask of the gateway's own database.

-- name: take
-- The first to name a run has the name; everybody else learns where it is by `find`.
INSERT INTO agentos_runs (user_id, workspace_id, run_id, session_id)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING session_id;

-- name: find
SELECT session_id FROM agentos_runs WHERE user_id = $1 AND workspace_id = $2 AND run_id = $3;

-- name: sessions
-- One page of the owner's active sessions: $3 agents (null: all), $4 part of the title, $5 the AgentOS user (null: all).
SELECT
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
    r.changed_at,
    count(*) OVER () AS total
FROM registrations AS r
WHERE
    r.user_id = $1 AND r.workspace_id = $2 AND r.state = 'active'
    AND ($3::text[] IS NULL OR r.agent_id = any($3::text[]))
    AND ($4::text IS NULL OR position(lower($4::text) IN lower(coalesce(r.title, ''))) > 0)
    AND ($5::text IS NULL OR r.metadata -> 'agentos' ->> 'user_id' = $5::text)
ORDER BY
    CASE WHEN $6::boolean THEN r.session_id END,
    CASE WHEN NOT $6::boolean THEN r.session_id END DESC
LIMIT $7 OFFSET $8;
