-- Turns that have not ended, of users who have a quota: written in the transaction of `turn.queued`, removed in that of the
-- turn's end. Read under the owner's advisory lock, so that it says how many there are, whichever process asks.

CREATE TABLE open_turns (
    session_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    owner uuid NOT NULL,
    PRIMARY KEY (session_id, turn_id)
);
CREATE INDEX open_turns_owner ON open_turns (owner);
COMMENT ON COLUMN open_turns.owner IS 'Made of workspace and user by the gateway';

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
    worker text := current_setting('turnlog.role_worker');
    line record;
BEGIN
    FOR line IN SELECT unnest(ARRAY[agent, worker]) AS grantee
    LOOP
        EXECUTE 'GRANT SELECT, INSERT, DELETE ON open_turns TO ' || quote_ident(line.grantee);
    END LOOP;
END
$$;
