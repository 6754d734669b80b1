-- Sessions that begin as copies: from where and up to which event, so that whoever finds one half made goes on with it.

CREATE TABLE session_copies (
    session_id uuid PRIMARY KEY,
    source_session_id uuid NOT NULL,
    upto bigint NOT NULL
);
COMMENT ON TABLE session_copies IS 'Written before the registration, by its id; ids and numbers only';

DO $$
BEGIN
    EXECUTE 'GRANT SELECT, INSERT ON session_copies TO ' || quote_ident(current_setting('turnlog.role_gateway'));
END
$$;
