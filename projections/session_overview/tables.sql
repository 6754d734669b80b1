-- One row a session: what a list of conversations shows.
CREATE TABLE session_overview (
    session_id uuid PRIMARY KEY,
    agent_id text NOT NULL,
    component text NOT NULL,
    created_at timestamptz NOT NULL,
    last_event_at timestamptz NOT NULL,
    last_sequence bigint NOT NULL,
    closed_at timestamptz,
    queued bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    interrupted bigint NOT NULL,
    cancelled bigint NOT NULL,
    last_turn_id uuid,
    last_input text
);
COMMENT ON COLUMN session_overview.last_input IS 'The beginning of what was submitted last';
CREATE INDEX ON session_overview (agent_id, last_event_at);
