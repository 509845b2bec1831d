package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// secretFile returns the secret of the given size kept at path, and makes a
// random one when there is none.
func secretFile(path string, size int) ([]byte, error) {
	text, err := readOrMake(path, func() string {
		b := make([]byte, size)
		rand.Read(b) // never fails (crypto/rand)
		return hex.EncodeToString(b)
	})
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != size {
		return nil, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: "key-damaged",
			Message: "the key file " + path + " is damaged",
			Hint:    "Restore it from a backup. Without it, runners that pinned its key trust nothing that this control plane sends."}
	}
	return b, nil
}

// tokenFile returns the API token kept at path, and makes one when there is none.
func tokenFile(path string) (string, error) {
	return readOrMake(path, func() string { return identity.NewToken(identity.PrefixAPI) })
}

// readOrMake returns the one line kept at path, and writes what make returns
// when there is no file. Of several processes that find none, one wins.
func readOrMake(path string, make func() string) (string, error) {
	for range 2 {
		b, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", folderError(path, err)
		}
		tmp, err := writeTemp(path, []byte(make()+"\n"))
		if err != nil {
			return "", folderError(path, err)
		}
		err = os.Link(tmp, path) // unlike a rename it never replaces
		_ = os.Remove(tmp)       // it has served; a leftover harms nobody
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", folderError(path, err)
		}
		if err := syncFolder(path); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%s comes and goes", path)
}

// replaceFile puts data at path, whole or not at all, readable by its owner.
func replaceFile(path string, data []byte) error {
	tmp, err := writeTemp(path, data)
	if err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// writeTemp writes a durable file beside path and returns its name.
func writeTemp(path string, data []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to tell
		return "", err
	}
	return f.Name(), nil
}

func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return folderError(path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return folderError(path, err)
	}
	return nil
}
