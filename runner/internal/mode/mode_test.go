package mode

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a customer says is there after a crash, a restart and a reboot: it is in
// a file.
func TestAWordIsKept(t *testing.T) {
	data := t.TempDir()
	if w, err := Read(data); err != nil || w.Mode != Enabled {
		t.Fatalf("before anything was said it is %+v: %v", w, err)
	}
	said := Word{Mode: Paused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC), Reason: "books are closed"}
	if err := Write(data, said); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != said {
		t.Errorf("read %+v, wrote %+v: %v", w, said, err)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
	if err := Write(data, Word{Mode: Enabled}); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err != nil || w != (Word{Mode: Enabled}) {
		t.Errorf("read %+v: %v", w, err)
	}
}

// TestAWordThatCannotBeReadIsNoLeaveToWork: somebody has said something.
func TestAWordThatCannotBeReadIsNoLeaveToWork(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut short": `{"mode":"dis`, "of a later version": `{"mode":"resting"}`, "without a mode": `{"reason":"?"}`,
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := Read(data)
			if err == nil || w.Mode != Paused || w.Reason == "" {
				t.Errorf("it reads as %+v: %v", w, err)
			}
		})
	}
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, file), 0o700); err != nil {
		t.Fatal(err)
	}
	if w, err := Read(data); err == nil || w.Mode != Paused {
		t.Errorf("a folder in its place reads as %+v: %v", w, err)
	}
}

func TestTheStricterWordCounts(t *testing.T) {
	for i, mild := range Modes() {
		for _, strict := range Modes()[i:] {
			a, b := Word{Mode: mild, Reason: "a"}, Word{Mode: strict, Reason: "b"}
			if got := Stricter(a, b).Mode; got != strict {
				t.Errorf("of %s and %s it is %s", mild, strict, got)
			}
			if got := Stricter(b, a).Mode; got != strict {
				t.Errorf("of %s and %s it is %s", strict, mild, got)
			}
		}
	}
	if _, err := Parse("off"); err == nil {
		t.Error("off is a mode")
	}
	if m, err := Parse(""); err != nil || m != Enabled {
		t.Errorf("nothing said is %q: %v", m, err)
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

// TestAnAdministratorsWordIsTheAgentsToRead: who runs the agent and who speaks
// for the customer need not be the same user.
func TestAnAdministratorsWordIsTheAgentsToRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only an administrator can give a file away")
	}
	const agent = 65532
	data := t.TempDir()
	if err := os.Chown(data, agent, agent); err != nil {
		t.Fatal(err)
	}
	if err := Write(data, Word{Mode: Disabled}); err != nil {
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

// What is obeyed is the word that was kept last.
func TestAWordIsObeyedSinceItWasKept(t *testing.T) {
	data := t.TempDir()
	paused := Word{Mode: Paused, Since: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)}
	expect := func(when string, want bool) {
		t.Helper()
		if got := Obeyed(data, paused); got != want {
			t.Errorf("%s, the pause is obeyed: %t", when, got)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(Obey(data, Word{Mode: Enabled})) // of an agent without a word of its customer
	if left, _ := filepath.Glob(filepath.Join(data, "*")); len(left) != 0 {
		t.Errorf("the folder has %v", left)
	}
	must(Write(data, paused))
	expect("kept", false)
	must(Obey(data, paused))
	expect("obeyed", true)
	must(Write(data, paused))
	expect("kept again", false)
	must(Obey(data, Word{Mode: Paused, Since: paused.Since.Add(time.Second)}))
	expect("when another is obeyed", false)
}
