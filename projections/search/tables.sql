-- What people and agents said, one row an input or a text item, with the terms it can be found by.
CREATE TABLE search_texts (
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    turn_id uuid NOT NULL,
    item_id text,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    created_at timestamptz NOT NULL,
    content text NOT NULL,
    folded text NOT NULL,
    terms text [] NOT NULL,
    PRIMARY KEY (session_id, sequence)
);
COMMENT ON COLUMN search_texts.folded IS 'As terms are cut from it: compatibility form, no case';
CREATE INDEX ON search_texts USING gin (terms);
CREATE INDEX ON search_texts (session_id, turn_id);
