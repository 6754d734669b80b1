-- Attachments: who may store them, who names them, when they go.
--
-- A blob stays as long as some session names it. The references are written by the append itself, whichever release
-- appends, and a foreign key keeps them: no event can name a blob that is not there, and nobody can take away one that is
-- named, however an append and an erase meet.

CREATE TABLE blob_references (
    session_id uuid NOT NULL,
    sha256 bytea NOT NULL REFERENCES blobs,
    PRIMARY KEY (session_id, sha256)
);
CREATE INDEX blob_references_of ON blob_references (sha256);
COMMENT ON TABLE blob_references IS 'Which sessions name a blob in an input; an erase takes those of its session away';
COMMENT ON COLUMN blobs.created_at IS 'When it was last handed in: what nobody names goes some time after';

CREATE FUNCTION keep_blob_references() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO blob_references (session_id, sha256)
    SELECT NEW.session_id, decode(p.part ->> 'blob', 'hex')
    FROM json_array_elements(NEW.payload -> 'input') AS p (part)
    WHERE p.part ->> 'type' = 'file'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
-- The condition is what other events, and inputs without files, pay.
CREATE TRIGGER events_keep_blob_references AFTER INSERT ON events
FOR EACH ROW
WHEN (new.type IN ('turn.queued', 'turn.input_rewritten') AND position('"type":"file"' IN new.payload::text) > 0)
EXECUTE FUNCTION keep_blob_references();

INSERT INTO blob_references (session_id, sha256)
SELECT e.session_id, b.sha256
FROM events AS e
CROSS JOIN LATERAL json_array_elements(e.payload -> 'input') AS p (part)
INNER JOIN blobs AS b ON b.sha256 = decode(p.part ->> 'blob', 'hex')
WHERE e.type IN ('turn.queued', 'turn.input_rewritten') AND position('"type":"file"' IN e.payload::text) > 0
ON CONFLICT DO NOTHING;

-- The name of a blob is made here, of what is stored, so that no role can store one under another's name.
CREATE FUNCTION keep_blob(kind text, pieces bytea []) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    whole bytea := (
        SELECT coalesce(string_agg(p.piece, ''::bytea ORDER BY p.place), '')
        FROM unnest(pieces) WITH ORDINALITY AS p (piece, place)
    );
    name bytea := sha256(whole);
BEGIN
    UPDATE blobs SET created_at = clock_timestamp() WHERE blobs.sha256 = name;
    IF NOT FOUND THEN
        INSERT INTO blobs (sha256, media_type, bytes, created_at)
        VALUES (name, kind, octet_length(whole), clock_timestamp())
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            INSERT INTO blob_chunks (sha256, chunk, content)
            SELECT name, p.place - 1, p.piece FROM unnest(pieces) WITH ORDINALITY AS p (piece, place);
        END IF;
    END IF;
    RETURN name;
END
$$;

-- Those of the named blobs that are there; they count as handed in now, so that they are still there in a moment.
CREATE FUNCTION known_blobs(names bytea []) RETURNS SETOF bytea
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH held AS (
        SELECT b.sha256 FROM blobs AS b WHERE b.sha256 = any(names) ORDER BY b.sha256 FOR NO KEY UPDATE
    )
    UPDATE blobs AS b SET created_at = clock_timestamp() FROM held WHERE b.sha256 = held.sha256 RETURNING b.sha256;
$$;

-- What was handed in so long ago and is named by nobody: its turn was refused, or its session erased.
CREATE FUNCTION collect_blobs(seconds double precision, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    DELETE FROM blobs AS b
    WHERE b.sha256 IN (
        SELECT o.sha256 FROM blobs AS o
        WHERE o.created_at < clock_timestamp() - make_interval(secs => seconds)
            AND NOT EXISTS (SELECT FROM blob_references AS r WHERE r.sha256 = o.sha256)
        LIMIT most
        FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;

CREATE OR REPLACE FUNCTION erase_session(
    subject uuid, upto bigint, sequences bigint [], skeletons json [], turn_rows json, files bytea [], kept text []
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    loose bytea [];
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
    -- What events behind the erase name, in the same transaction, stays named.
    WITH gone AS (
        DELETE FROM blob_references AS r
        WHERE r.session_id = subject
            AND NOT EXISTS (
                SELECT FROM events AS e
                WHERE e.session_id = subject AND e.sequence > upto
                    AND e.type IN ('turn.queued', 'turn.input_rewritten')
                    AND position(encode(r.sha256, 'hex') IN e.payload::text) > 0
            )
        RETURNING r.sha256
    )
    SELECT array_agg(gone.sha256) INTO loose FROM gone;
    DELETE FROM blobs AS b
    WHERE b.sha256 = any(loose || files)
        AND NOT EXISTS (SELECT FROM blob_references AS r WHERE r.sha256 = b.sha256);
END
$$;

DO $$
DECLARE
    agent text := current_setting('turnlog.role_agent');
    worker text := current_setting('turnlog.role_worker');
    projector text := current_setting('turnlog.role_projector');
BEGIN
    EXECUTE 'REVOKE ALL ON blob_references FROM PUBLIC';
    EXECUTE 'REVOKE ALL ON FUNCTION keep_blob_references(), keep_blob(text, bytea []), known_blobs(bytea []), collect_blobs(double precision, integer) FROM PUBLIC';
    EXECUTE 'REVOKE INSERT ON blobs, blob_chunks FROM ' || quote_ident(agent);
    EXECUTE 'GRANT SELECT ON blob_references TO ' || quote_ident(agent) || ', ' || quote_ident(projector);
    EXECUTE 'GRANT EXECUTE ON FUNCTION keep_blob(text, bytea []) TO ' || quote_ident(agent) || ', ' || quote_ident(worker);
    EXECUTE 'GRANT EXECUTE ON FUNCTION known_blobs(bytea []), collect_blobs(double precision, integer) TO ' || quote_ident(agent);
END
$$;
