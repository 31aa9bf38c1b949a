BEGIN TRANSACTION;
CREATE TABLE reconciler_drift (
	scope_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	class TEXT NOT NULL,
	job TEXT NOT NULL,
	entry TEXT DEFAULT '' NOT NULL,
	content TEXT DEFAULT '' NOT NULL,
	since_s DOUBLE NOT NULL,
	reported_at_s DOUBLE,
	is_hidden BOOLEAN DEFAULT 0 NOT NULL,
	PRIMARY KEY (scope_id, "key", class, job),
	FOREIGN KEY(scope_id) REFERENCES reconciler_scopes (id)
);
INSERT INTO "reconciler_drift" VALUES(1,'a','failed','j1','{"key":"a","class":"failed","job":"j1","detail":"ended","since":null,"changes":[],"began_at":null,"node_hours":null,"fix":null}','["failed","j1",[],[]]',1800000000.0,1800000000.0,0);
CREATE TABLE reconciler_keys (
	scope_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	sweep TEXT DEFAULT '' NOT NULL,
	is_declared BOOLEAN NOT NULL,
	PRIMARY KEY (scope_id, "key"),
	FOREIGN KEY(scope_id) REFERENCES reconciler_scopes (id)
);
INSERT INTO "reconciler_keys" VALUES(1,'a','lr-sweep',1);
CREATE TABLE reconciler_lines (
	run_id INTEGER NOT NULL,
	line INTEGER NOT NULL,
	"key" TEXT DEFAULT '' NOT NULL,
	number INTEGER,
	digest TEXT DEFAULT '' NOT NULL,
	action TEXT DEFAULT '' NOT NULL,
	call TEXT DEFAULT '' NOT NULL,
	name TEXT DEFAULT '' NOT NULL,
	job TEXT,
	at_s DOUBLE NOT NULL,
	ended_at_s DOUBLE,
	ok BOOLEAN,
	is_certain BOOLEAN,
	code TEXT DEFAULT '' NOT NULL,
	message TEXT DEFAULT '' NOT NULL,
	request_id TEXT DEFAULT '' NOT NULL,
	declared TEXT,
	PRIMARY KEY (run_id, line),
	FOREIGN KEY(run_id) REFERENCES reconciler_runs (id) ON DELETE CASCADE
);
INSERT INTO "reconciler_lines" VALUES(1,1,'a',1,'a111111111111','create','create','a','919dfa12-2061-5570-8164-d9e82f099f15',1800000000.0,1800000000.0,1,1,'','','','{"immutable":{"algorithm":{"parameters":{"lr":"0.1"}}},"mutable":{"spec":{"priority":"1"}},"description":"nightly","protect":true}');
CREATE TABLE reconciler_locks (
	scope_id INTEGER NOT NULL,
	token TEXT DEFAULT '' NOT NULL,
	who TEXT DEFAULT '' NOT NULL,
	place TEXT DEFAULT '' NOT NULL,
	command TEXT DEFAULT '' NOT NULL,
	since_s DOUBLE DEFAULT '0' NOT NULL,
	expires_s DOUBLE DEFAULT '0' NOT NULL,
	lifeline TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (scope_id),
	FOREIGN KEY(scope_id) REFERENCES reconciler_scopes (id)
);
INSERT INTO "reconciler_locks" VALUES(1,'','alice','laptop','reconciler apply',1800000000.0,1800000060.0,'');
CREATE TABLE reconciler_outcomes (
	run_id INTEGER NOT NULL,
	position INTEGER NOT NULL,
	"key" TEXT DEFAULT '' NOT NULL,
	action TEXT DEFAULT '' NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	status TEXT DEFAULT '' NOT NULL,
	detail TEXT DEFAULT '' NOT NULL,
	job TEXT,
	code TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (run_id, position),
	FOREIGN KEY(run_id) REFERENCES reconciler_runs (id) ON DELETE CASCADE
);
INSERT INTO "reconciler_outcomes" VALUES(1,1,'a','create','not_found','done','','919dfa12-2061-5570-8164-d9e82f099f15','');
CREATE TABLE reconciler_revisions (
	scope_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	number INTEGER NOT NULL,
	name TEXT DEFAULT '' NOT NULL,
	job TEXT DEFAULT '' NOT NULL,
	digest TEXT DEFAULT '' NOT NULL,
	phase TEXT DEFAULT '' NOT NULL,
	created_at_s DOUBLE,
	started_at_s DOUBLE,
	duration_s DOUBLE,
	node_count INTEGER DEFAULT '1' NOT NULL,
	seen_at_s DOUBLE,
	phases TEXT DEFAULT '' NOT NULL,
	declared TEXT,
	stopped BOOLEAN DEFAULT 0 NOT NULL,
	released_at_s DOUBLE,
	schedule TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (scope_id, "key", number),
	FOREIGN KEY(scope_id) REFERENCES reconciler_scopes (id)
);
INSERT INTO "reconciler_revisions" VALUES(1,'a',1,'a','919dfa12-2061-5570-8164-d9e82f099f15','a111111111111','Completed',1799913530.0,1799913540.0,60.0,1,1800000000.0,'[["Completed",1800000000.0]]','{"immutable":{"algorithm":{"parameters":{"lr":"0.1"}}},"mutable":{"spec":{"priority":"1"}},"description":"nightly","protect":true}',0,NULL,'');
CREATE TABLE reconciler_runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	scope_id INTEGER NOT NULL,
	kind TEXT DEFAULT '' NOT NULL,
	who TEXT DEFAULT '' NOT NULL,
	place TEXT DEFAULT '' NOT NULL,
	command TEXT DEFAULT '' NOT NULL,
	plan_digest TEXT DEFAULT '' NOT NULL,
	at_s DOUBLE NOT NULL,
	ended_at_s DOUBLE,
	result TEXT DEFAULT '' NOT NULL,
	summary TEXT DEFAULT '' NOT NULL,
	FOREIGN KEY(scope_id) REFERENCES reconciler_scopes (id)
);
INSERT INTO "reconciler_runs" VALUES(1,1,'apply','alice','laptop','apply','d1',1800000000.0,1800000000.0,'complete','{"done":1}');
CREATE TABLE reconciler_scopes (
	id INTEGER NOT NULL,
	stack TEXT DEFAULT '' NOT NULL,
	host TEXT DEFAULT '' NOT NULL,
	project_id TEXT DEFAULT '' NOT NULL,
	workspace_id TEXT DEFAULT '' NOT NULL,
	compared_at_s DOUBLE,
	applied_from TEXT,
	PRIMARY KEY (id),
	UNIQUE (stack, host, project_id, workspace_id)
);
INSERT INTO "reconciler_scopes" VALUES(1,'vision','modelarts.example','p1','0',NULL,'here');
CREATE TABLE reconciler_version (
	version INTEGER NOT NULL,
	PRIMARY KEY (version)
);
INSERT INTO "reconciler_version" VALUES(10);
CREATE INDEX reconciler_runs_of_a_scope ON reconciler_runs (scope_id, at_s);
CREATE INDEX reconciler_revisions_by_digest ON reconciler_revisions (digest);
CREATE INDEX reconciler_lines_of_a_revision ON reconciler_lines ("key", number);
CREATE INDEX reconciler_outcomes_of_a_key ON reconciler_outcomes ("key");
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('reconciler_runs',1);
COMMIT;
