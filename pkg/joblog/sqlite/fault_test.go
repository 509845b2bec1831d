package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/sqlite"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// childEnv names the environment variable with a file. If it is set, the test binary appends
// to the log in this file until it is killed, and prints each confirmed offset.
const childEnv = "JOBLOG_TEST_CHILD"

var stream = joblog.Stream{Job: "job_1", Epoch: 1}

// line returns the data of the i-th append.
func line(i int) []byte { return fmt.Appendf(nil, "line %d of the tool's output\n", i) }

func child(path string) error {
	ctx := context.Background()
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{})
	if err != nil {
		return err
	}
	l, err := sqlite.New(db)
	if err != nil {
		return err
	}
	if err := l.Open(ctx, stream); err != nil {
		return err
	}
	var offset int64
	for i := 0; ; i++ {
		if offset, err = l.Append(ctx, stream, offset, line(i)); err != nil {
			return err
		}
		fmt.Println(offset)
	}
}

func TestConfirmedAppendsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+filepath.Join(dir, "log.db"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var confirmed, appends int
	for scan := bufio.NewScanner(out); scan.Scan(); appends++ {
		if confirmed, err = strconv.Atoi(scan.Text()); err != nil {
			t.Fatal(err)
		}
		if appends == 50 {
			if err := cmd.Process.Kill(); err != nil { // SIGKILL
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // returns the error "signal: killed"
	if appends < 50 {
		t.Fatalf("the child ended by itself after %d appends", appends)
	}

	l, done := open(t, dir)
	defer done()
	var want []byte
	for i := range appends + 1 { // one append may be stored but not confirmed
		want = append(want, line(i)...)
	}
	c, err := l.Read(t.Context(), stream, 0, joblog.MaxRead)
	if err != nil || len(c.Data) < confirmed || string(c.Data) != string(want[:len(c.Data)]) {
		t.Errorf("%d bytes were confirmed; after the kill the log has %d, %v", confirmed, len(c.Data), err)
	}
	if c.Info.Size != int64(len(c.Data)) || c.Info.CRC32 != crc32.ChecksumIEEE(c.Data) {
		t.Errorf("the log reports %+v, but it has %d bytes with checksum %08x", c.Info, len(c.Data), crc32.ChecksumIEEE(c.Data))
	}
	// The writer repeats its appends, because it does not know which appends were stored.
	if next, err := l.Append(t.Context(), stream, 0, want); err != nil || next != int64(len(want)) {
		t.Errorf("repeated append: next is %d, %v; want %d", next, err, len(want))
	}
}

// The disk fills up. The append that does not fit returns an error and stores nothing. The
// confirmed bytes are readable and match their checksum.
func TestFullDiskKeepsConfirmedBytes(t *testing.T) {
	db, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitedb.Options{MaxPages: 200})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlite.New(db)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := l.Open(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 100_000)
	var size int64
	for err == nil {
		var next int64
		if next, err = l.Append(t.Context(), stream, size, data); err == nil {
			size = next
		}
	}
	if fairlead.KindOf(err) != fairlead.KindUnavailable || fairlead.CodeOf(err) != "disk-full" || size == 0 {
		t.Fatalf("after %d bytes: %v, want code %q", size, err, "disk-full")
	}
	c, err := l.Read(t.Context(), stream, 0, joblog.MaxRead)
	if err != nil || c.Info.Size != size || c.Next != size || c.Info.CRC32 != crc32.ChecksumIEEE(c.Data) {
		t.Errorf("%d bytes were confirmed; the log reports %+v, %v", size, c.Info, err)
	}
	if next, err := l.Append(t.Context(), stream, size, data[:10]); err != nil || next != size+10 {
		t.Errorf("an append that fits: next is %d, %v", next, err)
	}
}
