package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestFullDisk fills the disk of the control plane or of the runner. The control plane
// refuses requests and names the full disk as the reason. No confirmed data is lost, and
// work continues when the disk has space.
func TestFullDisk(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	const size = 64 << 20
	t.Run("control plane, idle", func(t *testing.T) {
		t.Parallel()
		disk := e2e.NewDisk(t, size, false)
		w := e2e.New(t, programs, e2e.Options{Storage: "http", ServerData: filepath.Join(disk.Path, "data")})
		i := w.Install("a", "")
		i.Deploy("--auto-approve").Until("succeeded")
		disk.Fill()
		var refused e2e.Result
		confirmed := []string{}
		for n := range 2000 { // SQLite reuses free pages, so a few writes may succeed
			if refused = w.CLI("install", "create", name(n), "--app", e2e.App, "--input", "dir=/x", "--input", "ask=http://x", "--input", "before="); refused.Code != 0 {
				break
			}
			confirmed = append(confirmed, name(n))
		}
		if refused.Code != 8 || !strings.Contains(refused.Stderr, "disk is full") {
			t.Errorf("exit code %d: %s", refused.Code, refused.Stderr)
		}
		if shown := w.Must("install", "show", "a"); !strings.Contains(shown, "deployed") {
			t.Errorf("with a full disk, `install show` prints:\n%s", shown)
		}
		w.Server.Kill()
		disk.Free()
		w.StartServer()
		for _, n := range confirmed {
			w.Must("install", "show", n)
		}
		w.Must("install", "create", "later", "--app", e2e.App, "--input", "dir=/x", "--input", "ask=http://x", "--input", "before=")
		i.CheckState()
		i.CheckClean()
	})
	t.Run("control plane, during an apply", func(t *testing.T) {
		t.Parallel()
		disk := e2e.NewDisk(t, size, false)
		w := e2e.New(t, programs, e2e.Options{Storage: "http", ServerData: filepath.Join(disk.Path, "data")})
		i := w.Install("a", "")
		d, j, open := apply(i, "second")
		disk.Fill()
		open()
		e2e.Until(t, "the tool is done and its step cannot report it", func() bool {
			return len(i.Created()) == 2 && strings.Contains(w.Server.Output(), "disk is full")
		})
		disk.Free()
		d.Until("succeeded")
		i.CheckOnce()
		i.CheckState()
		i.CheckClean()
		i.CheckLog(w.Job(j.ID))
	})
	for _, storage := range shortrun.OneOf(t, 0, storages...) {
		t.Run("runner, before a plan/"+storage, func(t *testing.T) {
			t.Parallel()
			disk := e2e.NewDisk(t, size, false)
			w := e2e.New(t, programs, e2e.Options{Storage: storage, RunnerData: filepath.Join(disk.Path, "data")})
			i := w.Install("a", "")
			disk.Fill()
			d := i.Deploy()
			d.Until("failed")
			shown := d.Show()
			if !strings.Contains(shown, "disk full") && !strings.Contains(shown, "no space left on device") {
				t.Errorf("`deployment show` does not name the full disk:\n%s", shown)
			}
			w.CheckOffers(shown)
			disk.Free()
			d.Finish()
			i.CheckOnce()
			i.CheckState()
			i.CheckClean()
		})
	}
	t.Run("runner, during an apply, state at the control plane", func(t *testing.T) {
		t.Parallel()
		disk := e2e.NewDisk(t, size, false)
		w := e2e.New(t, programs, e2e.Options{Storage: "http", RunnerData: filepath.Join(disk.Path, "data")})
		i := w.Install("a", "")
		d, j, open := apply(i, "second")
		disk.Fill()
		open()
		d.Until("succeeded")
		// The log is on the runner's disk until the runner has uploaded it. If there was
		// no space for a part of the log, the log is marked truncated.
		if j = w.Job(j.ID); !j.Log[0].Truncated {
			i.CheckLog(j)
		}
		disk.Free()
		i.CheckOnce()
		i.CheckState()
		i.CheckClean()
	})
	t.Run("runner, during an apply, state on its disk: a person must continue by hand", func(t *testing.T) {
		t.Parallel()
		disk := e2e.NewDisk(t, size, false)
		w := e2e.New(t, programs, e2e.Options{Storage: "local", RunnerData: filepath.Join(disk.Path, "data")})
		i := w.Install("a", "")
		d, j, open := apply(i, "first") // before Terraform has taken the space that its state needs
		disk.Fill()
		open()
		e2e.Until(t, "the job has ended", func() bool { j = w.Job(j.ID); return j.FinishedAt != nil })
		if j.State != "failed" || j.Reason != "state-unsaved" || !strings.Contains(j.Message, "no space left on device") || !strings.Contains(j.Message, "state push") {
			t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
		}
		if log := w.Must("job", "logs", j.ID, "--raw"); strings.Contains(log, `"lineage"`) {
			t.Errorf("the state is in the log:\n%s", log)
		}
		disk.Free()
		kept, _ := filepath.Glob(filepath.Join(w.RunnerData, "salvage", "*", "errored.tfstate"))
		if len(kept) != 1 || !strings.Contains(j.Message, kept[0]) {
			t.Fatalf("kept %q: %s", kept, j.Message)
		}
		if b, err := os.ReadFile(kept[0]); err != nil || !json.Valid(b) || !strings.Contains(string(b), `"first"`) {
			t.Errorf("the salvaged file is not the state: %v %s", err, b)
		}
		if did := d.Finish(); !slices.Equal(did, []string{retry, approve}) {
			t.Errorf("the person ran %q", did)
		}
		i.CheckOnce()
		i.CheckState()
		i.CheckClean()
	})
}

func name(n int) string { return "full-" + strings.Repeat("x", n%50) + string(rune('a'+n/50)) }

// TestReadOnlyData starts the control plane and the runner with a read-only data folder.
// Each program ends with an error that names the folder.
func TestReadOnlyData(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	disk := e2e.NewDisk(t, 1<<20, true)
	for _, tc := range []struct {
		name, program string
		args          []string
		code          int
		want          []string
	}{
		{"control plane", programs.Fairlead, []string{"server", "--listen", "127.0.0.1:0", "--data", disk.Path}, 8, []string{"data folder " + disk.Path, "read-only", "--data"}},
		{"control plane, no folder yet", programs.Fairlead, []string{"server", "--listen", "127.0.0.1:0", "--data", disk.Path + "/new"}, 8, []string{disk.Path + "/new", "read-only", "--data"}},
		{"runner", programs.Runner, []string{"agent", "--url", "http://127.0.0.1:1", "--data", disk.Path}, 1, []string{disk.Path, "read-only"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, output := e2e.Run(t, tc.program, tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(output, want) {
					t.Errorf("the output does not contain %q: %s", want, output)
				}
			}
		})
	}
}
