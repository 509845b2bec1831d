package sqlitedb

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Migrate updates the file's schema to version len(steps). Step i may have several
// statements and leads from version i to i+1. Each step runs in its own transaction, which
// also sets PRAGMA user_version. So after a crash between two steps, the next Migrate
// continues. A released step must never change.
//
// Migrate refuses a file of a higher version with code "data-newer" and does not change it.
func (d *DB) Migrate(ctx context.Context, steps []string) error {
	op := "migrate database " + d.path
	var version int
	if err := d.Write.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return Classify(op, err)
	}
	if version > len(steps) {
		return &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeDataNewer,
			Message: fmt.Sprintf("%s has schema version %d, but this program supports versions up to %d",
				d.path, version, len(steps)),
			Hint: "Start the version of fairlead that wrote the file, or a newer one. The file was not changed.",
		}
	}
	for i := version; i < len(steps); i++ {
		if err := d.step(ctx, steps[i], i+1); err != nil {
			return Classify(fmt.Sprintf("%s to version %d", op, i+1), err)
		}
	}
	return nil
}

func (d *DB) step(ctx context.Context, step string, version int) error {
	return d.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, version))
		return err
	})
}
