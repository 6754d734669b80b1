-- The gateway's own database: who owns a session and what they call it. It shares nothing with the agent service but ids.

CREATE TABLE registrations (
    session_id uuid PRIMARY KEY,
    user_id text NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 255),
    workspace_id text NOT NULL CHECK (octet_length(workspace_id) <= 255),
    external_id text CHECK (char_length(external_id) BETWEEN 1 AND 255),
    agent_id text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    state text NOT NULL CHECK (state IN ('starting', 'active', 'failed', 'deleted')),
    closed boolean NOT NULL DEFAULT false,
    token_hash bytea CHECK (octet_length(token_hash) = 32),
    token_expires_at timestamptz,
    title text,
    starred boolean NOT NULL DEFAULT false,
    context_version text,
    metadata json,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80);
COMMENT ON COLUMN registrations.fingerprint IS 'SHA-256 of what the creating request said: a repeat must say the same';
COMMENT ON COLUMN registrations.closed IS 'Of a deleted one: the agent service has confirmed CloseSession';
COMMENT ON COLUMN registrations.token_hash IS 'SHA-256 of the session token, which is shown once and never stored';

-- A deleted name stays taken for ever; a failed one was never in use.
CREATE UNIQUE INDEX registrations_external_id ON registrations (user_id, workspace_id, external_id)
WHERE state <> 'failed';
CREATE INDEX registrations_owner ON registrations (user_id, workspace_id, session_id) WHERE state = 'active';
CREATE INDEX registrations_unsettled ON registrations (changed_at)
WHERE state = 'starting' OR (state = 'deleted' AND NOT closed);
CREATE INDEX registrations_changed ON registrations (changed_at);
