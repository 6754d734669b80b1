-- AgentOS names runs without their session, and its callers may choose the name: which session each is in.

CREATE TABLE agentos_runs (
    user_id text NOT NULL,
    workspace_id text NOT NULL,
    run_id text NOT NULL CHECK (char_length(run_id) BETWEEN 1 AND 255),
    session_id uuid NOT NULL REFERENCES registrations (session_id),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (user_id, workspace_id, run_id)
);
COMMENT ON TABLE agentos_runs IS 'Never changed: a name stands for one run of its owner for ever';

DO $$
BEGIN
    EXECUTE 'GRANT SELECT, INSERT ON agentos_runs TO ' || quote_ident(current_setting('turnlog.role_gateway'));
END
$$;
