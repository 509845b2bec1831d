package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// measureFloor measures the time of the smallest durable commit and the sizes of the
// binaries.
func measureFloor(ctx context.Context, b *bench) (err error) {
	db, err := sqlitedb.Open(ctx, filepath.Join(b.work, "floor.db"), sqlitedb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Write.ExecContext(ctx, "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)"); err != nil {
		return err
	}
	insert, err := db.Write.PrepareContext(ctx, "INSERT INTO t (body) VALUES (?)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, insert.Close()) }()
	body := make([]byte, 500) // about the size of a job
	var took []float64
	for range b.counts.commits {
		began := time.Now()
		if _, err := insert.ExecContext(ctx, body); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
	}
	b.set("sqlite_commit_ms_p50", quantile(took, 0.5))
	b.set("sqlite_commit_ms_p95", quantile(took, 0.95))
	for figure, file := range map[string]string{"fairlead_mib": "bin/fairlead", "runner_mib": "bin/fairlead-runner"} {
		info, err := os.Stat(b.path(file))
		if err != nil {
			return err
		}
		b.set(figure, float64(info.Size())/(1<<20))
	}
	return nil
}
