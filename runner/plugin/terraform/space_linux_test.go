package terraform_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
)

// disk mounts a small file system; resize changes its size.
func disk(t *testing.T, size int64) (path string, resize func(size int64)) {
	t.Helper()
	path = t.TempDir()
	mount := func(flags uintptr, size int64) error {
		return syscall.Mount("fairlead-test", path, "tmpfs", flags, "mode=0700,size="+strconv.FormatInt(size, 10))
	}
	if err := mount(0, size); err != nil {
		t.Skipf("DISK FAULTS NOT TESTED: this user may not mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return path, func(size int64) {
		if err := mount(syscall.MS_REMOUNT, size); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that fills up during an apply must not lose the state of the new resources.
func TestFullDiskDoesNotLoseTheState(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) { fullDisk(t, path, "main.tf", "filling") })
		// The tool leaves its copy in its working folder, which differs from the source folder here.
		t.Run(name+" in a folder of the source", func(t *testing.T) { fullDisk(t, path, "live/web/main.tf", "filling#live/web") })
	}
}

func fullDisk(t *testing.T, path, file, digest string) {
	t.Helper()
	data, resize := disk(t, 24<<20)
	record := filepath.Join(t.TempDir(), "record")
	// The provisioner fills the disk.
	sources := map[string]map[string]string{digest: {file: `
resource "terraform_data" "x" {
  input = "printed-with-the-state"
  provisioner "local-exec" {
    command = "echo made >> ` + record + `; for size in 1M 4k 1; do dd if=/dev/zero bs=$size of=` + data + `/filler.$size 2>/dev/null; done; true"
  }
}
output "password" {
  value     = "known-to-the-state-alone"
  sensitive = true
}
`}}
	p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
	sp := spec(1, digest)
	res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), sources, sp))
	if err != nil {
		t.Fatal(err)
	}
	sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}

	// With too little space, the apply does not start.
	res, err = p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-2", plugintest.NewLog(), sources, sp))
	if plugin.ReasonOf(err) != fairlead.ReasonDiskFull || res.Mutated {
		t.Fatalf("error %v, result %+v; want disk-full and no change", err, res)
	}
	for _, want := range []string{filepath.Join(data, "state/ins_1/web"), "bytes free", "33554432", "Nothing was changed", "retry"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	if _, err := os.Stat(record); err == nil {
		t.Error("the provisioner ran")
	}

	// With enough space, until the provisioner fills it, the state is not lost.
	resize(64 << 20)
	log := plugintest.NewLog()
	res, err = p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-3", log, sources, sp))
	kept := filepath.Join(data, "salvage/job_1-3/errored.tfstate")
	if plugin.ReasonOf(err) != fairlead.ReasonStateUnsaved || !res.Mutated || !strings.Contains(err.Error(), kept) || !strings.Contains(err.Error(), "no space left") ||
		!res.DiskFull || res.Salvaged == nil || !res.Salvaged.Whole {
		t.Errorf("error %v, result %+v; want state-unsaved and the copy %s", err, res, kept)
	}
	b, err := os.ReadFile(kept)
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), "printed-with-the-state") {
		t.Errorf("the kept state is %q, error %v", b, err)
	}
	if strings.Contains(log.String(), "known-to-the-state-alone") || !strings.Contains(log.String(), "the tool printed its state here") {
		t.Errorf("the log:\n%s", log)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "work/*/reserve")); len(left) > 0 {
		t.Errorf("reserved space is left: %q", left)
	}
}

// Two applies at once must not count on the same free space.
func TestTwoAppliesReserveSeparateSpace(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data, _ := disk(t, 40<<20)
			p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			if err := os.MkdirAll(filepath.Join(data, "work/job_other-1"), 0o700); err != nil {
				t.Fatal(err)
			}
			other, err := os.Create(filepath.Join(data, "work/job_other-1/reserve"))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if err := syscall.Fallocate(int(other.Fd()), 0, 0, 16<<20); err != nil {
				t.Fatal(err)
			}
			sp := spec(1, "good")
			res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), sources, sp))
			if err != nil {
				t.Fatal(err)
			}
			sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}
			if _, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-2", plugintest.NewLog(), sources, sp)); plugin.ReasonOf(err) != fairlead.ReasonDiskFull {
				t.Errorf("an apply ignored the space that another apply reserved: %v", err)
			}
			if err := os.Remove(other.Name()); err != nil {
				t.Fatal(err)
			}
			other.Close()
			if _, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-3", plugintest.NewLog(), sources, sp)); err != nil {
				t.Errorf("after the other apply freed its space: %v", err)
			}
		})
	}
}
