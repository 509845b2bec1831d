package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/pkg/safefile"
)

func TestWriteReplacesTheFileAndLeavesNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, content := range []string{"the first, which is longer", "the second"} {
		if err := safefile.Write(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("the file contains %q: %v", b, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o700 {
			t.Errorf("the mode is %v: %v", st.Mode(), err)
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := safefile.Write(folder, nil, 0o600); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("the folder contains %v", left)
	}
	if err := safefile.Write(filepath.Join(dir, "none", "key"), nil, 0o600); err == nil {
		t.Error("a file was written into a missing folder")
	}
}

// If several goroutines create a file at once, one succeeds, and none reads an
// incomplete file.
func TestFileIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			switch err := safefile.Create(path, []byte(strings.Repeat(strconv.Itoa(i), 100)), 0o600); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
			if b, err := os.ReadFile(path); err != nil || len(b) != 100 {
				t.Errorf("the file contains %q: %v", b, err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d goroutines created the file", made.Load())
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder contains %v", left)
	}
}
