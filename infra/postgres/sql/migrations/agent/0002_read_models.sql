-- Session-scoped read models, written in the transaction that appends. Rows carry a generation; `sessions` names the
-- serving one, `projection_generations` which version of the code writes it.

CREATE TABLE projection_generations (
    name text NOT NULL,
    generation integer NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (name, generation)
);
INSERT INTO projection_generations (name, generation, version) VALUES ('turns', 1, 1), ('messages', 1, 1);

CREATE TABLE turns (
    session_id uuid NOT NULL,
    generation integer NOT NULL,
    turn_id uuid NOT NULL,
    enqueue_sequence bigint NOT NULL,
    status text NOT NULL
    CHECK (status IN ('queued', 'running', 'paused', 'completed', 'failed', 'interrupted', 'cancelled')),
    input json NOT NULL,
    context_version text,
    idempotency_key text,
    external_id text,
    metadata json,
    forked_from json,
    regenerates uuid,
    queued_at timestamptz NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    attempt integer NOT NULL,
    deaths integer NOT NULL,
    released boolean NOT NULL,
    continued boolean NOT NULL,
    next_frame bigint,
    rewritten_input json,
    output text,
    error json,
    usage json,
    requirements json,
    superseded_by uuid,
    parent_turn_id uuid,
    interrupt_by text,
    interrupt_then text,
    checkpoint_sequence bigint,
    started_at timestamptz,
    finished_at timestamptz,
    progress json,
    leg_started_at timestamptz,
    expires_at timestamptz,
    PRIMARY KEY (session_id, generation, turn_id),
    CONSTRAINT turns_idempotency_key UNIQUE (session_id, generation, idempotency_key),
    CONSTRAINT turns_enqueue_sequence UNIQUE (session_id, generation, enqueue_sequence),
    CONSTRAINT turns_external_id UNIQUE (session_id, generation, external_id)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX turns_active ON turns (session_id, generation) WHERE status IN ('running', 'paused');
CREATE INDEX turns_waiting ON turns (session_id, generation, enqueue_sequence) WHERE status = 'queued';

CREATE TABLE messages (
    session_id uuid NOT NULL,
    generation integer NOT NULL,
    message_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    enqueue_sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    parts json NOT NULL,
    items json,
    status text NOT NULL CHECK (status IN ('complete', 'partial', 'superseded')),
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, generation, message_id),
    CONSTRAINT messages_place UNIQUE (session_id, generation, enqueue_sequence, ordinal)
);
COMMENT ON COLUMN messages.items IS 'Which items the parts are made of, so that one of them can be superseded';
