package sqlitedb

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Migrate brings the file's schema to version len(steps). Step i, which may
// hold several statements, takes it from version i to i+1; each runs in a
// transaction of its own that also raises PRAGMA user_version, so a crash
// between two steps leaves a file that the next Migrate goes on with. A step
// that was ever released must never change.
//
// A file of a higher version is refused with code "data-newer" and left alone.
func (d *DB) Migrate(ctx context.Context, steps []string) error {
	op := "migrate database " + d.path
	var version int
	if err := d.Write.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return Classify(op, err)
	}
	if version > len(steps) {
		return &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeDataNewer,
			Message: fmt.Sprintf("%s has schema version %d, and this program knows versions up to %d",
				d.path, version, len(steps)),
			Hint: "Start the version of fairlead that wrote it, or a newer one. The file was left as it is.",
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
