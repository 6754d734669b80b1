-- Hooks whose run the log keeps: background jobs, and evaluations in line.
CREATE TABLE hook_runs (
    job_id uuid PRIMARY KEY,
    session_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    hook text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    result json,
    error text,
    attempts integer,
    sequence bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    finished_at timestamptz
);
CREATE INDEX ON hook_runs (session_id, sequence);
