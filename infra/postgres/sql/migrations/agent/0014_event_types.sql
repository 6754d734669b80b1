-- A type stands alone in a line of a stream: one with a line break in it would end the frame there, for every viewer and at
-- every replay. Rows from now on; 0015 looks at those that are there, with a lock that writers do not notice.
ALTER TABLE events ADD CONSTRAINT events_type_is_a_name
CHECK (octet_length(type) <= 100 AND type COLLATE "C" ~ '^[a-z0-9_]+([.][a-z0-9_]+)*$') NOT VALID;
