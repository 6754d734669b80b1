-- Reads the whole table once, without keeping anybody from writing.
ALTER TABLE events VALIDATE CONSTRAINT events_type_is_a_name;
