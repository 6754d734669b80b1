-- Rebuilds of turns and messages: a new generation of rows beside the one that is served. Both functions are for the worker
-- role, which writes these tables anyway; it may not delete from them, and this is the one way to: rows that no session is
-- served from.

CREATE FUNCTION open_generation(projection text, of_version integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    made integer;
BEGIN
    -- Whoever creates a session has read this table in its transaction: so this waits for all who have read the old
    -- generation, and every session that is born later is born in the new one.
    LOCK TABLE projection_generations IN ACCESS EXCLUSIVE MODE;
    SELECT max(g.generation) + 1 INTO STRICT made FROM projection_generations AS g WHERE g.name = projection;
    INSERT INTO projection_generations (name, generation, version) VALUES (projection, made, of_version);
    RETURN made;
END
$$;

CREATE FUNCTION clear_generation(projection text, of_generation integer, ids uuid []) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    IF projection = 'turns' THEN
        DELETE FROM turns AS t USING sessions AS s
        WHERE t.session_id = any(ids) AND t.generation = of_generation
            AND s.session_id = t.session_id AND s.turns_generation <> of_generation;
    ELSIF projection = 'messages' THEN
        DELETE FROM messages AS m USING sessions AS s
        WHERE m.session_id = any(ids) AND m.generation = of_generation
            AND s.session_id = m.session_id AND s.messages_generation <> of_generation;
    ELSE
        RAISE EXCEPTION 'no read model of sessions: %', projection;
    END IF;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;

DO $$
DECLARE
    worker text := current_setting('turnlog.role_worker');
BEGIN
    EXECUTE 'REVOKE ALL ON FUNCTION open_generation(text, integer), clear_generation(text, integer, uuid []) FROM PUBLIC';
    EXECUTE 'GRANT EXECUTE ON FUNCTION open_generation(text, integer), clear_generation(text, integer, uuid []) TO '
        || quote_ident(worker);
END
$$;
