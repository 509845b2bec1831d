package sqlitedb_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// mount creates and mounts a small file system. If it cannot mount, it skips the test. The
// tests need a separate file system, because it can be full and can refuse writes of root.
func mount(t *testing.T, options string) (dir string, remount func(options string)) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("SKIPPED: full disk and read-only folder are NOT tested: mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(options string) {
		t.Helper()
		flags := uintptr(syscall.MS_REMOUNT)
		if options == "ro" {
			flags, options = flags|syscall.MS_RDONLY, ""
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadOnlyFileSystemIsReported(t *testing.T) {
	dir, remount := mount(t, "size=4m")
	path := filepath.Join(dir, "a.db")
	db, err := sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, db, `CREATE TABLE t(x)`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	remount("ro")
	_, err = sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDataReadOnly)
	_, err = sqlitedb.Open(t.Context(), filepath.Join(dir, "new.db"), sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDataReadOnly)
}

func TestFolderWithoutPermissionIsReported(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("SKIPPED: root may write everywhere; TestReadOnlyFileSystemIsReported covers this")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitedb.Open(t.Context(), filepath.Join(dir, "a.db"), sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDataReadOnly)
}

// The disk becomes full while the database is open. The commit that needs more space than
// is free fails. Confirmed rows are readable, also after a reopening. When the disk has free
// space again, the same handle works again.
func TestFullDiskKeepsConfirmedRows(t *testing.T) {
	dir, remount := mount(t, "size=1m")
	path := filepath.Join(dir, "a.db")
	db := open(t, path, sqlitedb.Options{})
	exec1(t, db, `CREATE TABLE t(x)`)
	confirmed := 0
	var err error
	for range 100 {
		if _, err = db.Write.Exec(`INSERT INTO t VALUES(randomblob(50000))`); err != nil {
			break
		}
		confirmed++
	}
	wantCode(t, sqlitedb.Classify("insert", err), fairlead.KindUnavailable, fairlead.CodeDiskFull)

	count := func() (n int) {
		t.Helper()
		if err := db.Read.QueryRow(`SELECT count(*) FROM t WHERE length(x) = 50000`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != confirmed {
		t.Fatalf("%d rows are stored, %d were confirmed", n, confirmed)
	}
	remount("size=8m")
	exec1(t, db, `INSERT INTO t VALUES(randomblob(50000))`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path, sqlitedb.Options{})
	if n := count(); n != confirmed+1 {
		t.Fatalf("after reopening %d rows are stored, want %d", n, confirmed+1)
	}
}

func TestOpenOnAFullDiskIsRefused(t *testing.T) {
	dir, _ := mount(t, "size=4k,nr_inodes=8")
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitedb.Open(t.Context(), filepath.Join(dir, "a.db"), sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDiskFull)
}
