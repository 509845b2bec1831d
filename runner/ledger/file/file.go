// Package file is a ledger in a folder of one machine.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/ledger"
)

// Ledger implements ledger.Ledger.
type Ledger struct{ folder string }

// New returns the ledger in a folder, which is made when it is needed.
func New(folder string) *Ledger { return &Ledger{folder} }

// Create writes the entry to a file of its own and links it to its name: a link fails if the name exists, and a reader never sees a
// part of the entry.
func (l *Ledger) Create(_ context.Context, key string, value []byte) error {
	if err := ledger.Check(key, value); err != nil {
		return err
	}
	path := filepath.Join(l.folder, filepath.FromSlash(key))
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create an entry of the ledger: %w", err)
	}
	f, err := os.CreateTemp(folder, temporary)
	if err != nil {
		return fmt.Errorf("create an entry of the ledger: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(value)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", key, ledger.ErrExists)
	}
	if err == nil {
		err = safefile.SyncFolder(folder)
	}
	if err != nil {
		return fmt.Errorf("create an entry of the ledger: %w", err)
	}
	return nil
}

// temporary is the pattern of the names of files that are no entries yet. No key begins with a dot.
const temporary = ".new-*"

// Keys implements ledger.Ledger.
func (l *Ledger) Keys(_ context.Context, prefix string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(filepath.Join(l.folder, filepath.FromSlash(prefix)), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // never made, or removed meanwhile
			return nil
		case err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "."):
			return err
		}
		key, err := filepath.Rel(l.folder, path)
		all = append(all, filepath.ToSlash(key))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the ledger: %w", err)
	}
	slices.Sort(all)
	return all, nil
}

// List implements ledger.Ledger.
func (l *Ledger) List(ctx context.Context, prefix string) ([]ledger.Entry, error) {
	keys, err := l.Keys(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var all []ledger.Entry
	for _, key := range keys {
		value, err := safefile.Read(filepath.Join(l.folder, filepath.FromSlash(key)), ledger.MaxValue)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		all = append(all, ledger.Entry{Key: key, Value: value})
	}
	return all, nil
}

// Remove implements ledger.Ledger.
func (l *Ledger) Remove(_ context.Context, key string) error {
	if err := ledger.Check(key, nil); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(l.folder, filepath.FromSlash(key))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an entry of the ledger: %w", err)
	}
	return nil
}
