-- SPDX-License-Identifier: Apache-2.0
-- The ledger's schema as a list of steps: "-- @version N" begins the step that leads from version N-1 to N. A step that
-- was released is never edited; a change is a new step, and it only adds. Every table is explained in db/README.md.
-- `ev` is the id of the event a row's columns come from: a later event (by id) replaces an earlier one, so the order of
-- ingestion does not matter. Rows that are only referred to so far have ev = ''.

-- @version 1
CREATE TABLE run (
  run TEXT PRIMARY KEY NOT NULL, name TEXT, project TEXT, config_sha256 TEXT, config_text TEXT, user TEXT, host TEXT,
  git TEXT, version TEXT, parent_run TEXT, t REAL, cancelled_t REAL, ev TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE stage (
  run TEXT NOT NULL, stage TEXT NOT NULL, kind TEXT, seq INTEGER, spec_id TEXT, spec_version INTEGER, exe_sha256 TEXT,
  outputs TEXT, options TEXT, t REAL, cancelled_t REAL, ev TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, stage)
) WITHOUT ROWID;
CREATE TABLE edge (
  run TEXT NOT NULL, to_stage TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, from_stage TEXT NOT NULL,
  output TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT,
  PRIMARY KEY (run, to_stage, kind, name, from_stage, output, path)
) WITHOUT ROWID;
CREATE TABLE attempt (
  run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, token TEXT, backend TEXT, cluster TEXT,
  submit_cmd TEXT, script_sha256 TEXT, spec_id TEXT, req TEXT, t_submit REAL, jobid TEXT, job_submit_t REAL,
  t_submitted REAL, cancelled_t REAL, ev TEXT NOT NULL DEFAULT '', ev_submitted TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, stage, attempt)
) WITHOUT ROWID;
CREATE INDEX attempt_token ON attempt (token);
CREATE TABLE segment (
  run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, host TEXT, pid INTEGER,
  boot_id TEXT, proc_start INTEGER, jobid TEXT, t_start REAL, step_from INTEGER, from_attempt INTEGER,
  from_epoch INTEGER, state TEXT, exit INTEGER, signal INTEGER, reason TEXT, message TEXT, step_to INTEGER, used TEXT,
  t_end REAL, ev TEXT NOT NULL DEFAULT '', ev_end TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, stage, attempt, epoch)
) WITHOUT ROWID;
CREATE TABLE artifact (
  path TEXT PRIMARY KEY NOT NULL, run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL,
  epoch INTEGER NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL, kind TEXT, sha256 TEXT, bytes INTEGER, files INTEGER,
  step INTEGER, spec_id TEXT, meta TEXT, t REAL, ev TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX artifact_stage ON artifact (run, stage);
CREATE INDEX artifact_sha ON artifact (sha256);
CREATE TABLE gone (path TEXT PRIMARY KEY NOT NULL, t REAL, why TEXT, ev TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE io (
  run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, role TEXT NOT NULL,
  name TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT,
  PRIMARY KEY (run, stage, attempt, epoch, role, name, path)
) WITHOUT ROWID;
CREATE TABLE metric (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, key TEXT NOT NULL,
  stride INTEGER NOT NULL, last_epoch INTEGER, last_i INTEGER, last_step INTEGER, last REAL, last_t REAL, min REAL,
  min_step INTEGER, max REAL, max_step INTEGER,
  UNIQUE (run, stage, attempt, key)
);
CREATE TABLE metric_epoch (
  metric INTEGER NOT NULL, epoch INTEGER NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (metric, epoch)
) WITHOUT ROWID;
CREATE TABLE metric_point (
  metric INTEGER NOT NULL, epoch INTEGER NOT NULL, i INTEGER NOT NULL, step INTEGER NOT NULL, t REAL, value REAL,
  PRIMARY KEY (metric, epoch, i)
) WITHOUT ROWID;
CREATE TABLE event (
  id TEXT PRIMARY KEY NOT NULL, t REAL NOT NULL, run TEXT NOT NULL, stage TEXT, attempt INTEGER, epoch INTEGER,
  kind TEXT NOT NULL, data TEXT NOT NULL, path TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX event_run ON event (run, id);
CREATE TABLE note (
  ev TEXT PRIMARY KEY NOT NULL, t REAL, run TEXT NOT NULL, stage TEXT, author TEXT, text TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE node_strike (
  ev TEXT PRIMARY KEY NOT NULL, t REAL, host TEXT NOT NULL, cause TEXT NOT NULL, run TEXT NOT NULL, stage TEXT
) WITHOUT ROWID;
CREATE TABLE source (path TEXT PRIMARY KEY NOT NULL, offset INTEGER NOT NULL, t REAL) WITHOUT ROWID;
CREATE TABLE problem (path TEXT PRIMARY KEY NOT NULL, t REAL, text TEXT NOT NULL) WITHOUT ROWID;
-- The newest attempt of each stage and its newest segment, and the state that events alone imply.
CREATE VIEW stage_state AS
SELECT s.run AS run, s.stage AS stage, a.attempt AS attempt, g.epoch AS epoch,
  CASE
    WHEN a.attempt IS NOT NULL AND a.spec_id <> s.spec_id THEN 'waiting'
    WHEN g.state = 'done' THEN 'done'
    WHEN g.epoch IS NOT NULL AND g.state IS NULL THEN 'running'
    WHEN max(coalesce(s.cancelled_t, -1e18), coalesce(r.cancelled_t, -1e18), coalesce(a.cancelled_t, -1e18))
         > coalesce(a.t_submit, -1e17) THEN 'cancelled'
    WHEN g.state IN ('failed', 'cancelled') THEN g.state
    WHEN g.state = 'stopped' THEN 'pending'
    WHEN a.attempt IS NOT NULL THEN 'pending'
    ELSE 'waiting'
  END AS state
FROM stage s JOIN run r ON r.run = s.run
LEFT JOIN attempt a ON a.run = s.run AND a.stage = s.stage
  AND a.attempt = (SELECT max(attempt) FROM attempt WHERE run = s.run AND stage = s.stage)
LEFT JOIN segment g ON g.run = a.run AND g.stage = a.stage AND g.attempt = a.attempt
  AND g.epoch = (SELECT max(epoch) FROM segment WHERE run = a.run AND stage = a.stage AND attempt = a.attempt);

-- @version 2
CREATE TABLE tag (
  run TEXT NOT NULL, stage TEXT NOT NULL, tag TEXT NOT NULL, t REAL, author TEXT, removed INTEGER NOT NULL,
  ev TEXT NOT NULL, PRIMARY KEY (run, stage, tag)
) WITHOUT ROWID;
CREATE TABLE requeue (
  ev TEXT PRIMARY KEY NOT NULL, t REAL, run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL,
  epoch INTEGER NOT NULL, cause TEXT NOT NULL, jobid TEXT
) WITHOUT ROWID;
CREATE INDEX requeue_stage ON requeue (run, stage);
CREATE TABLE adopt (
  ev TEXT PRIMARY KEY NOT NULL, t REAL, run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL,
  jobid TEXT NOT NULL, author TEXT
) WITHOUT ROWID;
CREATE TABLE observed (
  run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, t REAL, state TEXT NOT NULL, raw TEXT, reason TEXT,
  exit INTEGER, signal INTEGER, host TEXT, jobid TEXT, message TEXT, ev TEXT NOT NULL,
  PRIMARY KEY (run, stage, attempt)
) WITHOUT ROWID;
-- Bookkeeping of this file, not of events: the runs that were walked, and when everything was.
CREATE TABLE walked (run TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX segment_open ON segment (run) WHERE ev_end = '';
-- As before, and what the scheduler was seen to say where the start itself says nothing (more).
DROP VIEW stage_state;
CREATE VIEW stage_state AS
SELECT s.run AS run, s.stage AS stage, a.attempt AS attempt, g.epoch AS epoch,
  CASE
    WHEN a.attempt IS NOT NULL AND a.spec_id <> s.spec_id THEN 'waiting'
    WHEN g.state = 'done' THEN 'done'
    WHEN o.state IN ('failed', 'cancelled') AND (g.state IS NULL OR g.state = 'stopped')
         AND o.ev > max(coalesce(g.ev, ''), coalesce(g.ev_end, '')) THEN o.state
    WHEN g.epoch IS NOT NULL AND g.state IS NULL THEN 'running'
    WHEN max(coalesce(s.cancelled_t, -1e18), coalesce(r.cancelled_t, -1e18), coalesce(a.cancelled_t, -1e18))
         > coalesce(a.t_submit, -1e17) THEN 'cancelled'
    WHEN g.state IN ('failed', 'cancelled') THEN g.state
    WHEN g.state = 'stopped' THEN 'pending'
    WHEN a.attempt IS NOT NULL THEN 'pending'
    ELSE 'waiting'
  END AS state
FROM stage s JOIN run r ON r.run = s.run
LEFT JOIN attempt a ON a.run = s.run AND a.stage = s.stage
  AND a.attempt = (SELECT max(attempt) FROM attempt WHERE run = s.run AND stage = s.stage)
LEFT JOIN segment g ON g.run = a.run AND g.stage = a.stage AND g.attempt = a.attempt
  AND g.epoch = (SELECT max(epoch) FROM segment WHERE run = a.run AND stage = a.stage AND attempt = a.attempt)
LEFT JOIN observed o ON o.run = a.run AND o.stage = a.stage AND o.attempt = a.attempt;

-- @version 3
-- Which steps a start's metrics stand for: after < step <= upto. A later start of the attempt that begins after step S
-- takes away what earlier ones wrote beyond S.
CREATE TABLE metric_span (
  run TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, after INTEGER NOT NULL,
  upto INTEGER NOT NULL, PRIMARY KEY (run, stage, attempt, epoch)
) WITHOUT ROWID;
INSERT INTO metric_span SELECT m.run, m.stage, m.attempt, p.epoch, min(p.step) - 1, max(p.step)
FROM metric m JOIN metric_point p ON p.metric = m.id GROUP BY 1, 2, 3, 4;

-- @version 4
-- What was decided at a rung of a sweep, once. kept and ended are lists of children.
CREATE TABLE rung (
  run TEXT NOT NULL, rung INTEGER NOT NULL, step INTEGER NOT NULL, stage TEXT, metric TEXT, kept TEXT NOT NULL,
  ended TEXT NOT NULL, t REAL NOT NULL, ev TEXT NOT NULL, PRIMARY KEY (run, rung)
) WITHOUT ROWID;
