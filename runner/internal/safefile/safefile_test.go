package safefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/safefile"
)

func TestAFileIsReplacedWholeAndNothingElseIsLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, content := range []string{"the first, which is longer", "the second"} {
		if err := safefile.Write(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("it holds %q: %v", b, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o700 {
			t.Errorf("it is %v: %v", st.Mode(), err)
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
		t.Errorf("there is %v", left)
	}
	if err := safefile.Write(filepath.Join(dir, "none", "key"), nil, 0o600); err == nil {
		t.Error("written into a folder that is not there")
	}
}
