-- Feed projections: read models across sessions, applied by projectors. Their tables are made by the projector role and
-- belong to it: `feed` holds those that are served, `feed_shadow` what a rebuild is making, `feed_previous` what the last
-- swap put aside. A swap moves tables between the three.

CREATE SCHEMA feed;
CREATE SCHEMA feed_shadow;
CREATE SCHEMA feed_previous;

CREATE TABLE feed_projections (
    name text NOT NULL,
    slot text NOT NULL CHECK (slot IN ('serving', 'shadow', 'previous')),
    version integer NOT NULL,
    tables text [] NOT NULL,
    transaction_id xid8 NOT NULL DEFAULT '0',
    position bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    runner text,
    expires_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, slot)
) WITH (fillfactor = 50);
COMMENT ON COLUMN feed_projections.fence IS 'Raised by every claim; a step of an older one is refused';

CREATE TABLE parked_events (
    name text NOT NULL,
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    reason text NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, session_id, sequence)
);
COMMENT ON TABLE parked_events IS 'Events that a projection could not apply, set aside so that it goes on';

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
    projector text := current_setting('turnlog.role_projector');
BEGIN
    EXECUTE 'REVOKE ALL ON feed_projections, parked_events FROM PUBLIC';
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON feed_projections, parked_events TO ' || quote_ident(projector);
    EXECUTE 'GRANT SELECT ON feed_projections, parked_events TO ' || quote_ident(agent);
    EXECUTE 'GRANT CREATE, USAGE ON SCHEMA feed, feed_shadow, feed_previous TO ' || quote_ident(projector);
    -- Whoever may use the schema may read its tables: the projector grants that when it makes them.
    EXECUTE 'GRANT USAGE ON SCHEMA feed TO ' || quote_ident(agent);
END
$$;
