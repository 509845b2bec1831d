package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/safefile"
)

// pinnedFile is the file with the keys of installs that this person has used, in the configuration folder.
const pinnedFile = "install-keys.json"

// pins are public keys of installs, by the URL of the control plane and the ID of the install.
type pins map[string]map[string]string

func readPins(getenv func(string) string) (pins, string, error) {
	path, err := Path(getenv)
	if err != nil {
		return nil, "", err
	}
	path = filepath.Join(filepath.Dir(path), pinnedFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return pins{}, path, nil
	}
	var all pins
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, path, fmt.Errorf("read the keys of installs in %s: %w", path, err)
	}
	return all, path, nil
}

// PinnedKey returns the public key with which this person encrypted a secret of the install before; "": none.
func PinnedKey(getenv func(string) string, url, install string) (string, error) {
	all, _, err := readPins(getenv)
	return all[url][install], err
}

// PinKey stores the key with which this person encrypts secrets of the install.
func PinKey(getenv func(string) string, url, install, public string) error {
	all, path, err := readPins(getenv)
	if err != nil {
		return err
	}
	if all[url] == nil {
		all[url] = map[string]string{}
	}
	all[url][install] = public
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	if err := safefile.Replace(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("store the key of an install: %w", err)
	}
	return nil
}
