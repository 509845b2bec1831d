package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// An append to a long log must not be slower than an append to a short log. So every
// statement must find its rows through an index, in order.
func TestNoStatementScansATable(t *testing.T) {
	db, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := db.Migrate(t.Context(), migrations); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		findStream, openStream, openEnded, anyStream, fencedStream, insertChunk, growStream, endStream, readChunks, listStreams, dropJob,
	} {
		rows, err := db.Write.Query("EXPLAIN QUERY PLAN "+statement, 1, 2, 3)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(detail, "SCAN") && detail != "SCAN CONSTANT ROW" || strings.Contains(detail, "TEMP B-TREE") {
				t.Errorf("%s\nhas a scan or a sort: %s", statement, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
