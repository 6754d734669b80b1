-- How far each reader of the feed has come. Written by compare-and-set, so that two processes of one name never both go on.

CREATE TABLE feed_checkpoints (
    name text PRIMARY KEY,
    transaction_id xid8 NOT NULL,
    position bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

DO $$
DECLARE
    projector text := current_setting('turnlog.role_projector');
BEGIN
    EXECUTE 'REVOKE ALL ON feed_checkpoints FROM PUBLIC';
    EXECUTE 'GRANT SELECT, INSERT, UPDATE ON feed_checkpoints TO ' || quote_ident(projector);
END
$$;
