package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// A long queue must not make Receive slower. So every statement must find its rows through
// an index, and in the order of the index.
func TestNoStatementScansTheTable(t *testing.T) {
	db, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlitedb.Options{})
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
		firstMessage, takeMessage, buryMessage, knowMessage, deleteMessage, extendMessage, removeMessage, buryAll, deadMessages, dropQueue,
	} {
		args := make([]any, strings.Count(statement, "?"))
		for i := range args {
			args[i] = i
		}
		rows, err := db.Write.Query("EXPLAIN QUERY PLAN "+statement, args...)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(detail, "SCAN") || strings.Contains(detail, "TEMP B-TREE") {
				t.Errorf("%s\nhas a scan or a sort: %s", statement, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
