//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/soak/account"
)

// witnesses is a ledger with the scripts that write it. The tool is a fake that prints that it
// runs, reads a line, and exits with 7.
type witnesses struct {
	dir, tool, note string
}

func newWitnesses(t *testing.T) witnesses {
	t.Helper()
	dir := t.TempDir()
	w := witnesses{dir, filepath.Join(dir, "tofu"), filepath.Join(dir, "note.sh")}
	ledger, fake := filepath.Join(dir, "ledger"), filepath.Join(dir, "fake")
	if err := errors.Join(os.WriteFile(ledger, nil, 0o600),
		os.WriteFile(fake, []byte("#!/bin/sh\necho running $*\nread line\nexit 7\n"), 0o700),
		os.WriteFile(w.tool, fmt.Appendf(nil, toolScript, ledger, dir, fake), 0o700),
		os.WriteFile(w.note, fmt.Appendf(nil, noteScript, ledger, linesPrinted), 0o600)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w witnesses) read(t *testing.T) []account.Record {
	t.Helper()
	f, err := os.Open(filepath.Join(w.dir, "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := account.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// src creates the folder in which the tool of an attempt runs.
func (w witnesses) src(t *testing.T, attempt string) string {
	t.Helper()
	src := filepath.Join(w.dir, "work", attempt, "src")
	if err := errors.Join(os.MkdirAll(src, 0o700), os.Symlink("/data/state/inst/web", filepath.Join(src, "..", "state"))); err != nil {
		t.Fatal(err)
	}
	return src
}

// begin starts the tool and returns when it runs. end lets the tool exit.
func (w witnesses) begin(t *testing.T, attempt, verb string) (end func() error) {
	t.Helper()
	cmd := exec.Command(w.tool, verb, "-x")
	cmd.Dir = w.src(t, attempt)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "FAIRLEAD_STEP=" + filepath.Join(w.dir, "steps", attempt)}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "running "+verb+" -x\n" {
		t.Fatalf("the tool prints %q (%v)", line, err)
	}
	return func() error {
		in.Close()
		return cmd.Wait()
	}
}

func TestTwoToolsOnOneStateOverlap(t *testing.T) {
	w := newWitnesses(t)
	first := w.begin(t, "job-1", "apply")
	second := w.begin(t, "other-3", "apply")
	if err := first(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("the exit of the tool is reported as %v", err)
	}
	second()
	w.begin(t, "third-1", "apply")()
	key := "/data/state/inst/web"
	want := []account.Record{
		{Kind: account.Tool, Verb: "apply", Attempt: "job-1", Key: key},
		{Kind: account.Tool, Verb: "apply", Attempt: "other-3", Key: key},
		{Kind: account.Overlap, Verb: "apply", Attempt: "other-3", Key: key, Holder: "job-1"},
		{Kind: account.Tool, Verb: "apply", Attempt: "third-1", Key: key},
	}
	if got := w.read(t); !slices.Equal(got, want) {
		t.Errorf("the ledger has\n%+v, want\n%+v", got, want)
	}
}

func TestPlanDuringAnApplyIsNoOverlap(t *testing.T) {
	w := newWitnesses(t)
	first := w.begin(t, "job-1", "apply")
	w.begin(t, "job-2", "plan")()
	first()
	for _, r := range w.read(t) {
		if r.Kind == account.Overlap {
			t.Errorf("%+v", r)
		}
	}
}

func TestResourceWritesTheLedgerAndItsLines(t *testing.T) {
	w := newWitnesses(t)
	var printed []byte
	for _, args := range [][]string{{"create", "r1", "shop/web", "terraform_data.a", "0"}, {"destroy", "r1", "shop/web", "terraform_data.a"}} {
		cmd := exec.Command("sh", append([]string{w.note}, args...)...)
		cmd.Dir = filepath.Join(w.dir, "work", "job-2", "src")
		cmd.Env = append(os.Environ(), "FAIRLEAD_STEP="+filepath.Join(w.dir, "steps", "job-2"))
		if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		printed = append(printed, out...)
	}
	want := []account.Record{
		{Kind: account.Create, ID: "r1", Owner: "shop/web", Address: "terraform_data.a", Attempt: "job-2"},
		{Kind: account.Printed, ID: "r1", Lines: linesPrinted, Attempt: "job-2"},
		{Kind: account.Destroy, ID: "r1", Owner: "shop/web", Address: "terraform_data.a", Attempt: "job-2"},
	}
	if got := w.read(t); !slices.Equal(got, want) {
		t.Errorf("the ledger has\n%+v, want\n%+v", got, want)
	}
	if n := bytes.Count(printed, []byte("\n")); n != linesPrinted || !bytes.HasPrefix(printed, []byte(account.Line("r1", 1)+"\n")) {
		t.Errorf("the resource printed %d lines, starting with %.40q", n, printed)
	}
}

func TestClockOffsetChangesOnlyTheWallClock(t *testing.T) {
	dir := t.TempDir()
	overlay, err := writeOverlay(dir)
	if err != nil {
		t.Fatalf("the soak cannot change clocks: %v", err)
	}
	source := `package main
import ("bufio"; "fmt"; "os"; "time")
func main() {
	begun := time.Now()
	for s := bufio.NewScanner(os.Stdin); s.Scan(); { fmt.Println(time.Now().UnixNano(), time.Since(begun).Nanoseconds()) }
}`
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := newClock(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{clockVariable + "=" + c.path}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	for _, by := range []time.Duration{0, 90*time.Minute + 999_999_999, -26*time.Hour - 999_999_999, 0} {
		if err := c.set(by); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		fmt.Fprintln(in)
		var wall, timer int64
		if _, err := fmt.Fscanln(answers, &wall, &timer); err != nil {
			t.Fatal(err)
		}
		if seen := time.Unix(0, wall).Add(-by); seen.Before(before) || seen.After(time.Now()) {
			t.Errorf("with the offset %s, the program's clock is wrong by %s", by, time.Unix(0, wall).Sub(before))
		}
		if timer < 0 || time.Duration(timer) > time.Since(started) {
			t.Errorf("with the offset %s, the program's timers measure %s", by, time.Duration(timer))
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSeedDeterminesTheFaults(t *testing.T) {
	all, total := faults(), 0
	for _, f := range all {
		total += f.weight
	}
	draw := func(seed uint64) (names []string) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 2000 {
			names = append(names, pick(all, r.IntN(total)).name)
		}
		return names
	}
	first := draw(1)
	if !slices.Equal(first, draw(1)) || slices.Equal(first, draw(2)) {
		t.Error("the seed does not determine the faults")
	}
	for _, f := range all {
		if !slices.Contains(first, f.name) {
			t.Errorf("%q is never drawn", f.name)
		}
		if !f.server && !f.host {
			t.Errorf("%q has no target", f.name)
		}
	}
}

func TestOfferedCommandsAreFound(t *testing.T) {
	text := "Look at `fairlead job logs job_1`.\nThen approve it with `fairlead deployment approve dep_1 web`, or cancel."
	var found []string
	for _, m := range offered.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	if want := []string{"job logs job_1", "deployment approve dep_1 web"}; !slices.Equal(found, want) {
		t.Errorf("found %s", strings.Join(found, "; "))
	}
}
