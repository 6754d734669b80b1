-- What clients may know of an agent beside its name: model, tools, members, steps. JSON as its worker announced it.
ALTER TABLE agents ADD COLUMN details text CHECK (octet_length(details) <= 65536);
COMMENT ON COLUMN agents.details IS 'Public facts as JSON, for discovery; null where a runtime tells none';
