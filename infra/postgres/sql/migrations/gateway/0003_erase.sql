-- A deleted session may have to be erased as well: the sweeper asks until the agent service has done so.

ALTER TABLE registrations ADD COLUMN erase boolean NOT NULL DEFAULT false;
