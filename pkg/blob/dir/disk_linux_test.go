package dir_test

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/blob/dir"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// mount creates a small file system, or skips the test. Only a real file system can be
// full, or refuse writes of root.
func mount(t *testing.T, options string) (root string, remount func(flags uintptr, options string)) {
	t.Helper()
	root = t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, options); err != nil {
		t.Skipf("SKIPPED: full disk and read-only folder are NOT tested: mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root, func(flags uintptr, options string) {
		t.Helper()
		if err := syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

func wantCode(t *testing.T, err error, code fairlead.Code) {
	t.Helper()
	if fairlead.KindOf(err) != fairlead.KindUnavailable || fairlead.CodeOf(err) != code {
		t.Fatalf("got %v (kind %q, code %q), want kind unavailable, code %q", err, fairlead.KindOf(err), fairlead.CodeOf(err), code)
	}
}

// The disk fills up. The blob that does not fit is refused and leaves no file, and the
// previous blob is unchanged. After space is freed, the same store works again.
func TestFullDiskKeepsThePreviousBlob(t *testing.T) {
	root, remount := mount(t, "size=1m")
	s, done := open(t, root)
	defer done()
	old := bytes.Repeat([]byte("old "), 50_000)
	if err := s.Put(t.Context(), "state/vpc", old); err != nil {
		t.Fatal(err)
	}
	before := strings.Join(files(t, root), " ")
	big := bytes.Repeat([]byte("new "), 500_000)
	for _, key := range []string{"state/vpc", "other/key"} {
		err := s.Put(t.Context(), key, big)
		wantCode(t, err, "disk-full")
		if !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), root) {
			t.Errorf("the error does not name the blob and the folder: %v", err)
		}
		if after := strings.Join(files(t, root), " "); after != before {
			t.Errorf("files after a refused put: %s; before: %s", after, before)
		}
	}
	if got, err := s.Get(t.Context(), "state/vpc"); err != nil || !bytes.Equal(got, old) {
		t.Fatalf("the previous blob: %d bytes, %v", len(got), err)
	}
	remount(0, "size=8m")
	if err := s.Put(t.Context(), "state/vpc", big); err != nil {
		t.Fatalf("put after space was freed: %v", err)
	}
}

// A disk can also have no free inodes. Then the blob's folder cannot be created after the
// blob is written.
func TestDiskWithoutFreeInodesIsFull(t *testing.T) {
	root, _ := mount(t, "size=1m,nr_inodes=5") // the root, tmp, blobs, the unfinished file, one folder
	s, done := open(t, root)
	defer done()
	wantCode(t, s.Put(t.Context(), "a/b/c", []byte("x")), "disk-full")
	for _, name := range files(t, root) {
		if !strings.HasSuffix(name, "/") {
			t.Errorf("a refused put left %s", name)
		}
	}
	if keys, err := s.List(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("listed %q, %v", keys, err)
	}
	if err := s.Put(t.Context(), "a/c", []byte("x")); err != nil {
		t.Errorf("a blob that fits: %v", err)
	}
}

func TestReadOnlyFileSystemIsReported(t *testing.T) {
	root, remount := mount(t, "size=1m")
	s, done := open(t, root)
	defer done()
	if err := s.Put(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_RDONLY, "")
	wantCode(t, s.Put(t.Context(), "k", []byte("y")), "data-read-only")
	wantCode(t, s.Delete(t.Context(), "k"), "data-read-only")
	if data, err := s.Get(t.Context(), "k"); err != nil || string(data) != "x" {
		t.Errorf("got %q, %v", data, err)
	}
	_, err := dir.New(root)
	wantCode(t, err, "data-read-only")
}
