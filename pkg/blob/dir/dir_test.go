package dir_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/blob/dir"
)

func open(t *testing.T, root string) (*dir.Store, func()) {
	t.Helper()
	s, err := dir.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDirConforms(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		Open: func(t *testing.T, root string) (blob.Store, func()) { return open(t, filepath.Join(root, "new")) },
	})
}

// files returns all paths below root; a folder's path ends in "/".
func files(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if entry.IsDir() {
			name += "/"
		}
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestOnlyTheOwnerCanReadBlobs(t *testing.T) {
	root := filepath.Join(t.TempDir(), "blobs")
	s, done := open(t, root)
	defer done()
	if err := s.Put(t.Context(), "state/ins_1/vpc", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, root) {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if perm := info.Mode().Perm(); perm&0o077 != 0 {
			t.Errorf("%s has mode %o", name, perm)
		}
	}
}

func TestDeleteRemovesEmptyFolders(t *testing.T) {
	root := t.TempDir()
	s, done := open(t, root)
	defer done()
	empty := strings.Join(files(t, root), " ")
	if err := s.Put(t.Context(), "state/ins_1/vpc", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "state/ins_1/vpc"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(files(t, root), " "); got != empty {
		t.Errorf("after the delete: %s; before: %s", got, empty)
	}
}

func TestNewRemovesOnlyUnfinishedFiles(t *testing.T) {
	root := t.TempDir()
	s, done := open(t, root)
	if err := s.Put(t.Context(), "k", []byte("whole")); err != nil {
		t.Fatal(err)
	}
	done()
	if err := os.WriteFile(filepath.Join(root, "tmp", "unfinished"), []byte("wh"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, done = open(t, root)
	defer done()
	if names := files(t, filepath.Join(root, "tmp")); len(names) != 1 {
		t.Errorf("tmp has the files %q, want none", names)
	}
	if data, err := s.Get(t.Context(), "k"); err != nil || string(data) != "whole" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestLinksToOutsideAreNotFollowed(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "x,blob")
	if err := os.WriteFile(secret, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, done := open(t, root)
	defer done()
	for name, target := range map[string]string{"out": outside, "up": "../../" + filepath.Base(outside), "file,blob": secret} {
		if err := os.Symlink(target, filepath.Join(root, "blobs", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"out/x", "up/x", "file"} {
		if data, err := s.Get(t.Context(), key); err == nil {
			t.Errorf("get %s returned %q from outside", key, data)
		}
	}
	for _, key := range []string{"out/x", "out/y", "out/y/z", "up/y"} {
		if err := s.Put(t.Context(), key, []byte("inside")); err == nil {
			t.Errorf("put %s wrote outside", key)
		}
		if err := s.Delete(t.Context(), key); err == nil && key == "out/x" {
			t.Errorf("delete %s deleted outside", key)
		}
	}
	// The link itself is a name inside the folder; replacing it changes no file outside.
	if err := s.Put(t.Context(), "file", []byte("inside")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "outside" {
		t.Errorf("the file outside has %q, %v", data, err)
	}
	if names := files(t, outside); len(names) != 2 {
		t.Errorf("the folder outside has %q", names)
	}
}

func TestForeignFilesAreNotListed(t *testing.T) {
	root := t.TempDir()
	s, done := open(t, root)
	defer done()
	if err := s.Put(t.Context(), "Key", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".DS_Store", "KEY,blob", ",,blob", ",blob", "a b,blob", "x", "x,blob.swp"} {
		if err := os.WriteFile(filepath.Join(root, "blobs", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := s.List(t.Context(), ""); err != nil || len(keys) != 1 || keys[0] != "Key" {
		t.Errorf("listed %q, %v", keys, err)
	}
}

func TestTooLargeFileIsNotRead(t *testing.T) {
	root := t.TempDir()
	s, done := open(t, root)
	defer done()
	name := filepath.Join(root, "blobs", "k,blob")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, blob.MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := dir.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := bytes.Repeat([]byte("x"), 20_000)
	for b.Loop() {
		if err := s.Put(b.Context(), "state/ins_1/vpc", data); err != nil {
			b.Fatal(err)
		}
	}
}
