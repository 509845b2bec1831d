// Package mode is the customer's own word on an agent: whether it takes work.
// It is said where the agent runs, in a file of its data folder or in the
// environment it is started with, and obeyed there: no control plane is asked,
// and none can overrule it.
package mode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/safefile"
)

// Mode is whether an agent takes work.
type Mode string

// The modes, from the mildest to the strictest.
const (
	Enabled  Mode = "enabled"  // takes work
	Paused   Mode = "paused"   // begins nothing; what runs goes on
	Draining Mode = "draining" // as paused, because the machine is to go
	Disabled Mode = "disabled" // begins nothing; what runs is interrupted, and saves its state
)

// Modes lists every mode, from the mildest to the strictest.
func Modes() []Mode { return []Mode{Enabled, Paused, Draining, Disabled} }

func (m Mode) severity() int {
	for i, known := range Modes() {
		if m == known {
			return i
		}
	}
	return -1
}

// Takes reports whether jobs may be begun.
func (m Mode) Takes() bool { return m == Enabled }

// Parse reads a mode; "" is Enabled.
func Parse(s string) (Mode, error) {
	if s == "" {
		return Enabled, nil
	}
	if m := Mode(s); m.severity() >= 0 {
		return m, nil
	}
	return "", fmt.Errorf("%q is no mode: enabled, paused, draining and disabled are", s)
}

// Word is what the customer has said.
type Word struct {
	Mode   Mode      `json:"mode"`
	Since  time.Time `json:"since,omitzero"`   // zero: not known
	Reason string    `json:"reason,omitempty"` // for people; one line
}

// MaxReason is the length of a reason, in characters.
const MaxReason = 200

// Stricter returns the stricter of two words; of two alike the first.
func Stricter(a, b Word) Word {
	if b.Mode.severity() > a.Mode.severity() {
		return b
	}
	return a
}

const (
	// file is the name of the word's file in the data folder.
	file = "mode.json"
	// obeyedFile has the word of file that the agent obeys.
	obeyedFile = "mode-obeyed.json"
)

// unreadable is what counts while nobody knows what was said: somebody has
// said something, and it was not yet that the agent may work.
func unreadable() Word {
	return Word{Mode: Paused, Reason: "the file " + file + " of the data folder cannot be read"}
}

// Read returns the word that is kept in the data folder: Enabled, if there is
// none. With an error, which says what is wrong with the file, it is Paused.
func Read(data string) (Word, error) {
	path := filepath.Join(data, file)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Word{Mode: Enabled}, nil
	}
	if err != nil {
		return unreadable(), fmt.Errorf("read the customer's word: %w", err)
	}
	var w Word
	if err := json.Unmarshal(b, &w); err != nil {
		return unreadable(), fmt.Errorf("read the customer's word in %s: %w", path, err)
	}
	if w.Mode.severity() < 0 {
		return unreadable(), fmt.Errorf("read the customer's word in %s: %q is no mode", path, w.Mode)
	}
	w.Reason = Line(w.Reason)
	return w, nil
}

// Write keeps the word in the data folder, whole or not at all; when it returns,
// a power cut does not take it back. The file is its owner's, also if an administrator writes it: the agent has to read it.
func Write(data string, w Word) error {
	// What is found there from now on was written by an agent that runs.
	if err := os.Remove(filepath.Join(data, obeyedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the customer's word: %w", err)
	}
	return write(data, file, w)
}

// Obey records that the agent on the data folder obeys the word that is kept
// there. A word that was never kept is not recorded.
func Obey(data string, w Word) error {
	if w.Since.IsZero() || Obeyed(data, w) {
		return nil
	}
	return write(data, obeyedFile, w)
}

// Obeyed reports whether an agent has obeyed the word since it was kept in the
// data folder.
func Obeyed(data string, w Word) bool {
	b, err := os.ReadFile(filepath.Join(data, obeyedFile))
	var obeyed Word
	return err == nil && json.Unmarshal(b, &obeyed) == nil && obeyed.Mode == w.Mode && obeyed.Reason == w.Reason && obeyed.Since.Equal(w.Since)
}

func write(data, file string, w Word) error {
	folder, err := os.Stat(data)
	if err != nil {
		return fmt.Errorf("find the agent's data folder: %w", err)
	}
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the customer's word: %w", err)
	}
	f, err := os.CreateTemp(data, file+".*")
	if err != nil {
		return fmt.Errorf("keep the customer's word: %w", err)
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
		return fmt.Errorf("keep the customer's word: %w", err)
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
