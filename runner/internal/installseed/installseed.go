// Package installseed keeps the seed of install keys in a data folder of an agent. The agent makes it, and its steps read it.
// Tools must not read it: it is a private file of the runner (see package confine).
package installseed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// File is the name of the file in the data folder. It has one seed a line, the current one first.
const File = "install-key.seed"

// maxSize is the largest size of the file in bytes. It has room for all lines that a ring of keys accepts.
const maxSize = 4 << 10

// anyInstall checks seeds for which no install is known yet.
const anyInstall = fairlead.InstallID("ins_any")

// Path returns the path of the file in a data folder.
func Path(data string) string { return filepath.Join(data, File) }

// Make makes a seed in the data folder, unless the folder has a file already. Two processes may call it at once.
func Make(data string, random io.Reader) error {
	if _, err := os.Lstat(Path(data)); err == nil {
		return nil
	}
	seed, err := installkey.NewSeed(random)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(data, File+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("make the seed of the install keys: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(seed + "\n")
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		// A link fails if the name exists, so the seed of another process is never replaced.
		if err = os.Link(temporary.Name(), Path(data)); errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("make the seed of the install keys: %w", err)
	}
	return nil
}

// Read returns the content of the file, after a check of each seed. It returns "" if there is no file. The errors do not
// contain a seed.
func Read(data string) (string, error) {
	b, err := safefile.Read(Path(data), maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the seed of the install keys: %w", err)
	}
	if _, err := installkey.NewRing(string(b), anyInstall); err != nil {
		return "", fmt.Errorf("read the seed of the install keys in %s: %w", Path(data), err)
	}
	return string(b), nil
}

// Add puts a new seed above those of the file. New values use its keys, and earlier values still open.
func Add(data string, random io.Reader) error {
	before, err := Read(data)
	if err != nil {
		return err
	}
	seed, err := installkey.NewSeed(random)
	if err != nil {
		return err
	}
	after := seed + "\n" + before
	if _, err := installkey.NewRing(after, anyInstall); err != nil {
		return err
	}
	if err := safefile.Replace(Path(data), []byte(after), 0o600); err != nil {
		return fmt.Errorf("write the seed of the install keys: %w", err)
	}
	return nil
}
