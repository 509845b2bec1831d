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

// The mode that a customer sets is there after a crash, a restart and a reboot: it is in
// a file.
func TestAModeIsKept(t *testing.T) {
	data := t.TempDir()
	if w, err := Read(data); err != nil || w.Mode != fairlead.ModeEnabled {
		t.Fatalf("before any was set it is %+v: %v", w, err)
	}
	set := fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC), Reason: "books are closed"}
	if err := Write(data, set); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != set {
		t.Errorf("read %+v, wrote %+v: %v", w, set, err)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
	if err := Write(data, fairlead.CustomerMode{Mode: fairlead.ModeEnabled}); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != (fairlead.CustomerMode{Mode: fairlead.ModeEnabled}) {
		t.Errorf("read %+v: %v", w, err)
	}
}

// TestAModeThatCannotBeReadIsNoLeaveToWork: the customer has set one.
func TestAModeThatCannotBeReadIsNoLeaveToWork(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut short": `{"mode":"dis`, "of a later version": `{"mode":"resting"}`, "without a mode": `{"reason":"?"}`,
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := Read(data)
			if err == nil || w.Mode != fairlead.ModePaused || w.Reason == "" {
				t.Errorf("it reads as %+v: %v", w, err)
			}
		})
	}
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, file), 0o700); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err == nil || w.Mode != fairlead.ModePaused {
		t.Errorf("a folder in its place reads as %+v: %v", w, err)
	}
}

func TestAReasonIsOneShortLine(t *testing.T) {
	if got := Line(" a\n\x1b[2Jb\tc "); got != "a [2Jb c" {
		t.Errorf("it is %q", got)
	}
	if got := Line(strings.Repeat("ä", 300)); got != strings.Repeat("ä", MaxReason) {
		t.Errorf("it has %d bytes", len(got))
	}
}

// TestAnAdministratorsModeIsTheAgentsToRead: who runs the agent and who sets the
// mode need not be the same user.
func TestAnAdministratorsModeIsTheAgentsToRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only an administrator can give a file away")
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
		t.Errorf("it is of %d:%d, with mode %v", of.Uid, of.Gid, st.Mode().Perm())
	}
}

// What is confirmed is the mode that was kept last.
func TestAModeIsConfirmedSinceItWasKept(t *testing.T) {
	data := t.TempDir()
	paused := fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)}
	expect := func(when string, want bool) {
		t.Helper()
		if got := Confirmed(data, paused); got != want {
			t.Errorf("%s, the pause is obeyed: %t", when, got)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(Confirm(data, fairlead.CustomerMode{Mode: fairlead.ModeEnabled})) // of an agent without a mode of its customer
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 0 {
		t.Errorf("the folder has %v", left)
	}
	must(Write(data, paused))
	expect("kept", false)
	must(Confirm(data, paused))
	expect("obeyed", true)
	must(Write(data, paused))
	expect("kept again", false)
	must(Confirm(data, fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: paused.Since.Add(time.Second)}))
	expect("when another is obeyed", false)
}
