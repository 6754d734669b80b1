-- What opens a session's events stream in a browser, which can send no header there: a ticket once, then a cookie.

CREATE TABLE stream_passes (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kind text NOT NULL CHECK (kind IN ('ticket', 'cookie')),
    session_id uuid NOT NULL REFERENCES registrations (session_id),
    user_id text,
    workspace_id text,
    token_hash bytea CHECK (octet_length(token_hash) = 32),
    access_expires_at timestamptz,
    expires_at timestamptz NOT NULL,
    CHECK ((user_id IS NOT NULL AND workspace_id IS NOT NULL) <> (token_hash IS NOT NULL))
);
COMMENT ON COLUMN stream_passes.digest IS 'SHA-256 of the ticket or the cookie, neither of which is stored';
COMMENT ON COLUMN stream_passes.token_hash IS 'Who asked for it by a session token: good as long as that token is';
COMMENT ON COLUMN stream_passes.access_expires_at IS 'When the credential that asked for it ends; null: never';

CREATE INDEX stream_passes_expired ON stream_passes (expires_at);

DO $$
BEGIN
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON stream_passes TO ' || quote_ident(current_setting('turnlog.role_gateway'));
END
$$;
