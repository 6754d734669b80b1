-- Tokens of model requests by session, agent, user, day and model; days are UTC.
CREATE TABLE usage_tokens (
    session_id uuid NOT NULL,
    day date NOT NULL,
    model text NOT NULL,
    agent_id text NOT NULL,
    user_id text NOT NULL,
    requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    PRIMARY KEY (session_id, day, model)
);
CREATE INDEX ON usage_tokens (day, agent_id);
CREATE INDEX ON usage_tokens (user_id, day);
CREATE TABLE usage_sessions (
    session_id uuid PRIMARY KEY,
    agent_id text NOT NULL,
    user_id text NOT NULL
);
