-- What a rebuild has left behind goes, and with it the way back: rows of generations that their session is not served from.
-- For the worker role, under the lock of rebuilds: the rows of one that is under way are such rows, too.

CREATE FUNCTION forget_rows(projection text, ids uuid []) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    IF projection = 'turns' THEN
        DELETE FROM turns AS t USING sessions AS s
        WHERE t.session_id = any(ids) AND s.session_id = t.session_id AND t.generation <> s.turns_generation;
    ELSIF projection = 'messages' THEN
        DELETE FROM messages AS m USING sessions AS s
        WHERE m.session_id = any(ids) AND s.session_id = m.session_id AND m.generation <> s.messages_generation;
    ELSE
        RAISE EXCEPTION 'no read model of sessions: %', projection;
    END IF;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;

CREATE FUNCTION forget_generations(projection text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    -- The newest one stays: sessions are born in it.
    DELETE FROM projection_generations AS g
    WHERE g.name = projection
        AND g.generation < (SELECT max(n.generation) FROM projection_generations AS n WHERE n.name = projection)
        AND NOT EXISTS (
            SELECT FROM sessions AS s
            WHERE CASE projection WHEN 'turns' THEN s.turns_generation ELSE s.messages_generation END = g.generation
        );
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;

DO $$
DECLARE
    worker text := current_setting('turnlog.role_worker');
BEGIN
    EXECUTE 'REVOKE ALL ON FUNCTION forget_rows(text, uuid []), forget_generations(text) FROM PUBLIC';
    EXECUTE 'GRANT EXECUTE ON FUNCTION forget_rows(text, uuid []), forget_generations(text) TO ' || quote_ident(worker);
END
$$;
