package sqlite

// migrations are the SQL scripts of sqlitedb.Migrate. A released script must never change.
//
// A job's fence is its highest epoch: opening an epoch fences all earlier epochs. The fence
// has no column of its own, because the column could contradict the epochs. AUTOINCREMENT
// never uses the id of a dropped stream again. The chunks of a stream have no gaps and do not
// overlap. So of the chunks that start at or before offset x, the last chunk contains x.
var migrations = []string{`
CREATE TABLE log_streams (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	job       TEXT    NOT NULL,
	epoch     INTEGER NOT NULL,
	size      INTEGER NOT NULL DEFAULT 0, -- bytes
	crc32     INTEGER NOT NULL DEFAULT 0, -- IEEE, of the size bytes
	ended     INTEGER NOT NULL DEFAULT 0,
	truncated INTEGER NOT NULL DEFAULT 0,
	UNIQUE (job, epoch)
) STRICT;
CREATE TABLE log_chunks (
	stream INTEGER NOT NULL REFERENCES log_streams (id) ON DELETE CASCADE,
	start  INTEGER NOT NULL, -- offset of the first byte
	data   BLOB    NOT NULL, -- 1 byte to 64 KiB
	PRIMARY KEY (stream, start)
) STRICT;
`, `
ALTER TABLE log_streams ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
CREATE TABLE log_budgets (
	runner TEXT    PRIMARY KEY,
	bytes  INTEGER NOT NULL, -- that were left
	at     INTEGER NOT NULL  -- at this time, in nanoseconds since 1970
) STRICT;
`}

const (
	findStream = `SELECT s.id, s.size, s.crc32, s.ended, s.truncated, s.cut,
		EXISTS (SELECT 1 FROM log_streams l WHERE l.job = s.job AND l.epoch > s.epoch)
		FROM log_streams s WHERE s.job = ? AND s.epoch = ?`

	// openStream adds the stream unless it exists or is fenced.
	openStream = `INSERT INTO log_streams (job, epoch) SELECT ?1, ?2
		WHERE NOT EXISTS (SELECT 1 FROM log_streams WHERE job = ?1 AND epoch >= ?2)`

	// openEnded adds an empty stream that has ended, unless it exists or is fenced.
	openEnded = `INSERT INTO log_streams (job, epoch, ended, truncated) SELECT ?1, ?2, 1, ?3
		WHERE NOT EXISTS (SELECT 1 FROM log_streams WHERE job = ?1 AND epoch >= ?2)`

	anyStream = `SELECT EXISTS (SELECT 1 FROM log_streams WHERE job = ?)`

	fencedStream = `SELECT EXISTS (SELECT 1 FROM log_streams WHERE job = ? AND epoch > ?)`

	insertChunk = `INSERT INTO log_chunks (stream, start, data) VALUES (?, ?, ?)`

	growStream = `UPDATE log_streams SET size = ?, crc32 = ? WHERE id = ?`

	endStream = `UPDATE log_streams SET ended = 1, truncated = (? OR cut)
		WHERE job = ? AND epoch = ? AND ended = 0 RETURNING size`

	cutStream = `UPDATE log_streams SET cut = 1 WHERE job = ? AND epoch = ? AND ended = 0`

	findBudget = `SELECT bytes, at FROM log_budgets WHERE runner = ?`

	storeBudget = `INSERT INTO log_budgets (runner, bytes, at) VALUES (?1, ?2, ?3)
		ON CONFLICT (runner) DO UPDATE SET bytes = ?2, at = ?3`

	// readChunks returns the chunks that contain the bytes from ?2 up to, but not
	// including, ?3.
	readChunks = `SELECT start, data FROM log_chunks
		WHERE stream = ?1 AND start < ?3 AND start >= (
			SELECT max(start) FROM log_chunks WHERE stream = ?1 AND start <= ?2)
		ORDER BY start`

	listStreams = `SELECT epoch, size, crc32, ended, truncated, cut
		FROM log_streams WHERE job = ? ORDER BY epoch`

	dropJob = `DELETE FROM log_streams WHERE job = ? RETURNING epoch`
)
