-- Least privilege. Role names depend on the namespace; `turnlog migrate` passes them as settings.
-- Nobody but the owner may UPDATE, DELETE or TRUNCATE events, and even the owner meets the triggers.

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
    worker text := current_setting('turnlog.role_worker');
    projector text := current_setting('turnlog.role_projector');
    line record;
BEGIN
    EXECUTE 'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC';
    EXECUTE 'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC';
    FOR line IN
        SELECT * FROM (VALUES
            (agent, 'SELECT', 'store_meta, projection_generations, workers, agents'),
            (agent, 'SELECT, INSERT', 'events, blobs, blob_chunks'),
            (agent, 'SELECT, INSERT, UPDATE', 'sessions, command_log, turns, messages'),
            (agent, 'SELECT, INSERT, UPDATE, DELETE', 'claims'),
            (worker, 'SELECT', 'store_meta, projection_generations, blobs, blob_chunks'),
            (worker, 'SELECT, INSERT', 'events'),
            (worker, 'SELECT, INSERT, UPDATE', 'sessions, command_log, turns, messages, agents'),
            (worker, 'SELECT, INSERT, UPDATE, DELETE', 'claims, workers'),
            (projector, 'SELECT',
             'store_meta, projection_generations, sessions, events, turns, messages, claims, workers, agents')
        ) AS grants (grantee, privileges, tables)
    LOOP
        EXECUTE 'GRANT ' || line.privileges || ' ON ' || line.tables || ' TO ' || quote_ident(line.grantee);
    END LOOP;
END
$$;
