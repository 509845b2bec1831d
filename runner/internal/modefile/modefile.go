// Package modefile stores the customer's mode of an agent in a file of the agent's data folder. The
// agent reads the file itself, so the mode applies without the control plane.
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

// MaxReason is the largest length of a reason, in characters.
const MaxReason = 200

const (
	// file is the name of the file with the customer's mode.
	file = "mode.json"
	// confirmedFile is the name of the file with the mode that the agent applied last.
	confirmedFile = "mode-obeyed.json"
)

// unreadable returns the mode that applies if the file cannot be read. The customer has set a mode,
// which may forbid jobs, so the agent starts no jobs.
func unreadable() fairlead.CustomerMode {
	return fairlead.CustomerMode{Mode: fairlead.ModePaused, Reason: "the file " + file + " of the data folder cannot be read"}
}

// Read returns the customer's mode in the data folder, or ModeEnabled if no mode was set. If the file
// cannot be read or parsed, Read returns ModePaused and the error.
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
		return unreadable(), fmt.Errorf("read the customer's mode in %s: %q is not a mode", path, m.Mode)
	}
	m.Reason = Line(m.Reason)
	return m, nil
}

// Write writes the mode to the data folder, completely or not at all. After Write has returned, the
// mode survives a power cut. The file gets the folder's owner even if an administrator writes it,
// because the agent must be able to read the file.
func Write(data string, m fairlead.CustomerMode) error {
	// Remove the old confirmation. A later confirmation can then only come from a running agent.
	if err := os.Remove(filepath.Join(data, confirmedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the customer's mode: %w", err)
	}
	return write(data, file, m)
}

// Confirm records that the data folder's agent has applied the mode m. It does nothing if m has no
// time, because Write did not write it.
func Confirm(data string, m fairlead.CustomerMode) error {
	if m.Since.IsZero() || Confirmed(data, m) {
		return nil
	}
	return write(data, confirmedFile, m)
}

// Confirmed reports whether an agent has applied the mode m since Write wrote it.
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
		return fmt.Errorf("write the customer's mode: %w", err)
	}
	defer os.Remove(f.Name()) // fails if the file was renamed; that is harmless
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, own(f, folder), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(data, file))
	}
	if err == nil {
		err = safefile.SyncFolder(data)
	}
	if err != nil {
		return fmt.Errorf("write the customer's mode: %w", err)
	}
	return nil
}

// Line converts a person's text to one line of at most MaxReason printable characters.
func Line(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if utf8.RuneCountInString(s) > MaxReason {
		s = string([]rune(s)[:MaxReason])
	}
	return s
}
