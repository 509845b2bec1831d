package sqlite

// steps make the schema; see sqlitedb.DB.Migrate. A released step never changes.
//
// Keys are BLOBs, because SQLite compares those byte by byte, and the ends of a
// query's range are byte strings that are no UTF-8. WITHOUT ROWID makes the table itself the order of the keys: a
// query of a partition reads neighbouring pages, and a body is one look-up away.
// The indexes are partial, so an item that is in neither costs them nothing;
// SQLite adds the primary key to their entries, which gives items that share a
// place an order.
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
`}
}
