// Package mirrortest is the conformance suite of mirrors.
package mirrortest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
)

// Run tests a mirror that is empty. open opens the mirror again on the same storage.
func Run(t *testing.T, open func(t *testing.T) mirror.Mirror) {
	const (
		name  = "registry.opentofu.org/hashicorp/aws/terraform-provider-aws_6.1.0_linux_arm64.zip"
		other = "registry.opentofu.org/hashicorp/aws/terraform-provider-aws_6.1.0_linux_amd64.zip"
	)
	put := func(t *testing.T, name string, content []byte) error {
		path := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return open(t).Put(t.Context(), name, f)
	}
	get := func(t *testing.T, name string) []byte {
		t.Helper()
		var b bytes.Buffer
		if err := open(t).Get(t.Context(), name, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}

	t.Run("a missing archive is not an empty one", func(t *testing.T) {
		if err := open(t).Get(t.Context(), name, &bytes.Buffer{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
	})
	t.Run("a new archive replaces a poisoned one", func(t *testing.T) {
		large := bytes.Repeat([]byte("provider"), 1<<20)
		for _, content := range [][]byte{[]byte("poisoned"), large, {}} {
			if err := put(t, name, content); err != nil {
				t.Fatal(err)
			}
			if got := get(t, name); !bytes.Equal(got, content) {
				t.Errorf("read %d bytes, want the %d that were stored", len(got), len(content))
			}
		}
		if err := open(t).Get(t.Context(), other, &bytes.Buffer{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("another platform's archive: %v, want fs.ErrNotExist", err)
		}
	})
	t.Run("jobs that store at once leave a whole archive", func(t *testing.T) {
		a, b := bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)
		var all sync.WaitGroup
		for _, content := range [][]byte{a, b, a, b} {
			all.Go(func() {
				if err := put(t, name, content); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := get(t, name); !bytes.Equal(got, a) && !bytes.Equal(got, b) {
			t.Errorf("the archive is a mix of two, %d bytes", len(got))
		}
	})
}
