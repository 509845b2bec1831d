// Package modefile keeps the mode that a customer has set for an agent: in a file
// of the agent's data folder, which the agent reads without asking a control plane.
package modefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// MaxReason is the length of a reason, in characters.
const MaxReason = 200

const (
	// file is the name of the mode's file in the data folder.
	file = "mode.json"
	// confirmedFile has the mode of file that the agent has applied.
	confirmedFile = "mode-obeyed.json"
)

// unreadable is the mode while the file cannot be read: the customer has set one,
// and it may be any.
func unreadable() fairlead.CustomerMode {
	return fairlead.CustomerMode{Mode: fairlead.ModePaused, Reason: "the file " + file + " of the data folder cannot be read"}
}

// Read returns the mode that is kept in the data folder: ModeEnabled, if there is
// none. With an error, which describes what is wrong with the file, it is ModePaused.
func Read(data string) (fairlead.CustomerMode, error) {
	path := filepath.Join(data, file)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fairlead.CustomerMode{Mode: fairlead.ModeEnabled}, nil
	}
	if err != nil {
		return unreadable(), fmt.Errorf("read the customer's mode: %w", err)
	}
	var m fairlead.CustomerMode
	if err := json.Unmarshal(b, &m); err != nil {
		return unreadable(), fmt.Errorf("read the customer's mode in %s: %w", path, err)
	}
	if !slices.Contains(fairlead.RunnerModes(), m.Mode) {
		return unreadable(), fmt.Errorf("read the customer's mode in %s: %q is no mode", path, m.Mode)
	}
	m.Reason = Line(m.Reason)
	return m, nil
}

// Write keeps the mode in the data folder, whole or not at all; when it returns,
// a power cut does not take it back. The file is owned by the folder's owner, also
// if an administrator writes it: the agent has to read it.
func Write(data string, m fairlead.CustomerMode) error {
	// What is found there from now on was written by an agent that runs.
	if err := os.Remove(filepath.Join(data, confirmedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the customer's mode: %w", err)
	}
	return write(data, file, m)
}

// Confirm records that the agent on the data folder has applied the mode that is
// kept there. A mode that was never kept is not recorded.
func Confirm(data string, m fairlead.CustomerMode) error {
	if m.Since.IsZero() || Confirmed(data, m) {
		return nil
	}
	return write(data, confirmedFile, m)
}

// Confirmed reports whether an agent has applied the mode since it was kept in the
// data folder.
func Confirmed(data string, m fairlead.CustomerMode) bool {
	b, err := os.ReadFile(filepath.Join(data, confirmedFile))
	var applied fairlead.CustomerMode
	return err == nil && json.Unmarshal(b, &applied) == nil && applied.Mode == m.Mode && applied.Reason == m.Reason && applied.Since.Equal(m.Since)
}

func write(data, file string, m fairlead.CustomerMode) error {
	folder, err := os.Stat(data)
	if err != nil {
		return fmt.Errorf("find the agent's data folder: %w", err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the customer's mode: %w", err)
	}
	f, err := os.CreateTemp(data, file+".*")
	if err != nil {
		return fmt.Errorf("keep the customer's mode: %w", err)
	}
	defer os.Remove(f.Name()) // which is gone, if it was renamed
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, own(f, folder), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(data, file))
	}
	if err == nil {
		err = safefile.SyncFolder(data)
	}
	if err != nil {
		return fmt.Errorf("keep the customer's mode: %w", err)
	}
	return nil
}

// Line makes one short line of what a person has written.
func Line(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if utf8.RuneCountInString(s) > MaxReason {
		s = string([]rune(s)[:MaxReason])
	}
	return s
}
