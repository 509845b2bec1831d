package sqlite

// steps returns the steps that create the schema; see sqlitedb.DB.Migrate. A released step
// must never change.
//
// Keys are BLOBs for two reasons: SQLite compares BLOBs byte by byte, and the end of a
// query's range can be a byte string that is not UTF-8. WITHOUT ROWID stores the table in
// the order of the keys. So a query of a partition reads neighbouring pages, and one
// look-up finds a body. The indexes are partial, so an item that is not in an index costs
// nothing there. SQLite adds the primary key to index entries, which gives an order to
// items with the same index key.
//
// With AUTOINCREMENT, the table changes never uses the number of a deleted change again.
func steps() []string {
	return []string{`
CREATE TABLE items (
	partition      BLOB    NOT NULL,
	sort           BLOB    NOT NULL,
	version        INTEGER NOT NULL,
	token          TEXT    NOT NULL,
	body           BLOB    NOT NULL,
	list_partition BLOB,
	list_sort      BLOB,
	due_partition  BLOB,
	due_sort       BLOB,
	expires        INTEGER, -- seconds since 1970
	PRIMARY KEY (partition, sort)
) STRICT, WITHOUT ROWID;
CREATE INDEX items_list ON items (list_partition, list_sort) WHERE list_partition IS NOT NULL;
CREATE INDEX items_due ON items (due_partition, due_sort) WHERE due_partition IS NOT NULL;
CREATE INDEX items_expires ON items (expires) WHERE expires IS NOT NULL;
`, `
CREATE TABLE changes (
	sequence    INTEGER PRIMARY KEY AUTOINCREMENT, -- or a forgotten one's would come again
	partition   BLOB NOT NULL,
	sort        BLOB NOT NULL,
	old_version INTEGER, -- NULL: there was none
	old_body    BLOB,
	version     INTEGER, -- NULL: it was deleted
	body        BLOB
) STRICT;
`, `
CREATE TABLE noted (
	sequence    INTEGER PRIMARY KEY AUTOINCREMENT, -- as in changes
	partition   BLOB NOT NULL,
	sort        BLOB NOT NULL,
	old_version INTEGER,
	old_body    BLOB,
	version     INTEGER,
	body        BLOB,
	note        BLOB NOT NULL
) STRICT;
`}
}
