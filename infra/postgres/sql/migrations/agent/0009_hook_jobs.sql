-- Background hooks that are not done yet: written in the transaction of `hook.scheduled`, removed in that of the job's end.
-- The log says what is to be done; this says who tries it, and when it is due to be told again.

CREATE TABLE hook_jobs (
    job_id uuid PRIMARY KEY,
    session_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    agent_id text NOT NULL,
    hook text NOT NULL,
    scheduled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 0,
    held_until timestamptz,
    due_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX hook_jobs_due ON hook_jobs (due_at);
CREATE INDEX hook_jobs_session ON hook_jobs (session_id);
COMMENT ON COLUMN hook_jobs.held_until IS 'A worker runs it; whoever dies loses it then';
COMMENT ON COLUMN hook_jobs.due_at IS 'From then on a worker that looks tells the work queue again';

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
    worker text := current_setting('turnlog.role_worker');
    projector text := current_setting('turnlog.role_projector');
BEGIN
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON hook_jobs TO ' || quote_ident(worker);
    -- An erased session's jobs go with it.
    EXECUTE 'GRANT SELECT, DELETE ON hook_jobs TO ' || quote_ident(agent);
    EXECUTE 'GRANT SELECT ON hook_jobs TO ' || quote_ident(projector);
END
$$;
