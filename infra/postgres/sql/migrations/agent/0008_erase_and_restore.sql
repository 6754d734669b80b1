-- The two things that may change events, each in a function of the owner's that the triggers recognise, and no further than
-- it must: an erase empties payloads and takes salts and private parts away, the restore's stamp sets the feed's order anew.

CREATE OR REPLACE FUNCTION events_are_append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    owned boolean := current_user = (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = TG_RELID);
BEGIN
    IF TG_OP = 'UPDATE' AND owned THEN
        IF current_setting('turnlog.erasing', true) = OLD.session_id::text
            AND NEW.salt IS NULL AND NEW.private IS NULL
            AND (NEW.session_id, NEW.sequence, NEW.event_id, NEW.type, NEW.schema_version, NEW.turn_id,
                NEW.payload_digest, NEW.private_digest, NEW.metadata::text, NEW.created_at, NEW.transaction_id,
                NEW.position, NEW.hash)
            IS NOT DISTINCT FROM
            (OLD.session_id, OLD.sequence, OLD.event_id, OLD.type, OLD.schema_version, OLD.turn_id,
                OLD.payload_digest, OLD.private_digest, OLD.metadata::text, OLD.created_at, OLD.transaction_id,
                OLD.position, OLD.hash)
        THEN
            RETURN NEW;
        END IF;
        IF current_setting('turnlog.stamping', true) = 'on'
            AND (NEW.session_id, NEW.sequence, NEW.event_id, NEW.type, NEW.schema_version, NEW.turn_id,
                NEW.payload::text, NEW.private, NEW.salt, NEW.payload_digest, NEW.private_digest, NEW.metadata::text,
                NEW.created_at, NEW.hash)
            IS NOT DISTINCT FROM
            (OLD.session_id, OLD.sequence, OLD.event_id, OLD.type, OLD.schema_version, OLD.turn_id,
                OLD.payload::text, OLD.private, OLD.salt, OLD.payload_digest, OLD.private_digest, OLD.metadata::text,
                OLD.created_at, OLD.hash)
        THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'events are append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION erase_session(
    subject uuid, upto bigint, sequences bigint [], skeletons json [], turn_rows json, files bytea [], kept text []
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('turnlog.erasing', subject::text, true);
    UPDATE events AS e SET payload = s.skeleton, salt = NULL, private = NULL
    FROM unnest(sequences, skeletons) AS s (sequence, skeleton)
    WHERE e.session_id = subject AND e.sequence = s.sequence;
    PERFORM set_config('turnlog.erasing', '', true);
    UPDATE turns AS t SET
        input = r.input, metadata = r.metadata, rewritten_input = r.rewritten_input, output = r.output,
        error = r.error, usage = r.usage, requirements = r.requirements
    FROM json_to_recordset(turn_rows) AS r (
        turn_id uuid, input json, metadata json, rewritten_input json, output text, error json, usage json,
        requirements json
    )
    WHERE t.session_id = subject AND t.turn_id = r.turn_id;
    DELETE FROM messages WHERE session_id = subject AND first_sequence <= upto;
    UPDATE command_log SET reply = NULL WHERE session_id = subject AND idempotency_key <> ALL (kept);
    -- An attachment goes unless another session names it, too. Attachments are few and this is rare, so that it looks at
    -- all turns.
    DELETE FROM blobs AS b
    WHERE b.sha256 = any(files)
        AND NOT EXISTS (
            SELECT FROM turns AS t
            WHERE t.session_id <> subject
                AND position(encode(b.sha256, 'hex') IN coalesce(t.input::text, '') || coalesce(t.rewritten_input::text, '')) > 0
        );
END
$$;

CREATE FUNCTION stamp_restored() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    raised integer;
BEGIN
    -- Transaction ids of another cluster mean nothing here: events get this transaction's, and positions in the order that
    -- the feed had. Whoever has read the feed up to some event goes on after the same event.
    LOCK TABLE events, feed_projections, feed_checkpoints, store_meta IN ACCESS EXCLUSIVE MODE;
    PERFORM set_config('turnlog.stamping', 'on', true);
    CREATE TEMPORARY TABLE stamped ON COMMIT DROP AS
    SELECT e.session_id, e.sequence, e.transaction_id, e.position,
        row_number() OVER (ORDER BY e.transaction_id, e.position) AS place
    FROM events AS e;
    CREATE INDEX ON stamped (transaction_id, position);
    UPDATE feed_projections AS p SET
        position = coalesce((
            SELECT max(s.place) FROM stamped AS s
            WHERE (s.transaction_id, s.position) <= (p.transaction_id, p.position)
        ), 0),
        transaction_id = pg_current_xact_id(), runner = NULL, expires_at = NULL;
    UPDATE feed_checkpoints AS p SET
        position = coalesce((
            SELECT max(s.place) FROM stamped AS s
            WHERE (s.transaction_id, s.position) <= (p.transaction_id, p.position)
        ), 0),
        transaction_id = pg_current_xact_id();
    ALTER TABLE events ALTER COLUMN position SET GENERATED BY DEFAULT;
    UPDATE events AS e SET transaction_id = pg_current_xact_id(), position = s.place
    FROM stamped AS s
    WHERE e.session_id = s.session_id AND e.sequence = s.sequence;
    ALTER TABLE events ALTER COLUMN position SET GENERATED ALWAYS;
    PERFORM setval(pg_get_serial_sequence('events', 'position'), (SELECT count(*) + 1 FROM stamped), false);
    PERFORM set_config('turnlog.stamping', '', true);
    UPDATE store_meta SET epoch = epoch + 1 RETURNING epoch INTO raised;
    RETURN raised;
END
$$;

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
BEGIN
    EXECUTE 'REVOKE ALL ON FUNCTION erase_session(uuid, bigint, bigint [], json [], json, bytea [], text []), stamp_restored() FROM PUBLIC';
    EXECUTE 'GRANT EXECUTE ON FUNCTION erase_session(uuid, bigint, bigint [], json [], json, bytea [], text []) TO ' || quote_ident(agent);
END
$$;
