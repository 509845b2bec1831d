package modefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The customer's mode is in a file, so it survives a crash, a restart and a reboot.
func TestModeIsReadBackAsWritten(t *testing.T) {
	data := t.TempDir()
	if w, err := Read(data); err != nil || w.Mode != fairlead.ModeEnabled {
		t.Fatalf("without a file, Read = %+v, %v, want enabled", w, err)
	}
	set := fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC), Reason: "books are closed"}
	if err := Write(data, set); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != set {
		t.Errorf("Read = %+v, want %+v: %v", w, set, err)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 1 {
		t.Errorf("the folder holds %v, want one file", left)
	}
	if err := Write(data, fairlead.CustomerMode{Mode: fairlead.ModeEnabled}); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != (fairlead.CustomerMode{Mode: fairlead.ModeEnabled}) {
		t.Errorf("Read = %+v, want enabled: %v", w, err)
	}
}

// If a mode file exists, the customer has set a mode, and this mode may forbid jobs.
func TestUnreadableModeMeansPaused(t *testing.T) {
	for name, text := range map[string]string{
		"an empty file": "", "a truncated file": `{"mode":"dis`, "a mode of a later version": `{"mode":"resting"}`, "a file without a mode": `{"reason":"?"}`,
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := Read(data)
			if err == nil || w.Mode != fairlead.ModePaused || w.Reason == "" {
				t.Errorf("Read = %+v, %v, want paused with a reason, and an error", w, err)
			}
		})
	}
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, file), 0o700); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err == nil || w.Mode != fairlead.ModePaused {
		t.Errorf("with a folder in place of the file, Read = %+v, %v, want paused and an error", w, err)
	}
}

func TestReasonIsOneShortLine(t *testing.T) {
	if got := Line(" a\n\x1b[2Jb\tc "); got != "a [2Jb c" {
		t.Errorf("Line = %q", got)
	}
	if got := Line(strings.Repeat("ä", 300)); got != strings.Repeat("ä", MaxReason) {
		t.Errorf("Line returned %d bytes, want %d characters", len(got), MaxReason)
	}
}

// The administrator who sets the mode and the agent may be different users.
func TestAgentCanReadAnAdministratorsMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can change the owner of a file")
	}
	const agent = 65532
	data := t.TempDir()
	if err := os.Chown(data, agent, agent); err != nil {
		t.Fatal(err)
	}
	if err := Write(data, fairlead.CustomerMode{Mode: fairlead.ModeDisabled}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(data, file))
	if err != nil {
		t.Fatal(err)
	}
	if of := st.Sys().(*syscall.Stat_t); of.Uid != agent || of.Gid != agent || st.Mode().Perm() != 0o600 {
		t.Errorf("the file has owner %d:%d and permissions %v, want %d:%d and 0600", of.Uid, of.Gid, st.Mode().Perm(), agent, agent)
	}
}

// A confirmation is valid only for the mode that was written last.
func TestConfirmationIsForTheLastModeOnly(t *testing.T) {
	data := t.TempDir()
	paused := fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)}
	expect := func(when string, want bool) {
		t.Helper()
		if got := Confirmed(data, paused); got != want {
			t.Errorf("%s: Confirmed = %t, want %t", when, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(Confirm(data, fairlead.CustomerMode{Mode: fairlead.ModeEnabled})) // the customer has set no mode for this agent
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 0 {
		t.Errorf("the folder holds %v, want nothing", left)
	}
	must(Write(data, paused))
	expect("after Write", false)
	must(Confirm(data, paused))
	expect("after Confirm", true)
	must(Write(data, paused))
	expect("after another Write", false)
	must(Confirm(data, fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: paused.Since.Add(time.Second)}))
	expect("after Confirm of another mode", false)
}
