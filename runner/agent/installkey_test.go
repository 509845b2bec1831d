package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/installseed"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
	"github.com/fairlead/fairlead/test/plane"
)

// A new agent makes a seed, if it may. A process finds it in the data folder, and a container gets it as a variable that is not in its
// input. Steps that run elsewhere, and steps for which the customer names a seed, do not get the agent's own.
func TestSeedReachesTheStepsOfThisMachine(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	cfg.MakeSeed = true
	a, err := open(t.Context(), cfg, Options{StepCommand: []string{"/bin/false"}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer a.lock.Close()
	seed, err := installseed.Read(a.cfg.Data)
	if err != nil || seed == "" {
		t.Fatalf("the agent made no seed: %v", err)
	}
	own := "file:" + filepath.Join(a.cfg.Data, installseed.File)
	for name, c := range map[string]struct {
		runner    runnerspec.Configuration
		place     executor.Place
		named     string // install_key of the agent's file
		reference string
		given     bool
	}{
		"a process":                       {&runnerspec.LocalRunner{Common: runnerspec.Common{Type: runnerspec.Local}}, executor.Place{Shared: true, Machine: true}, "", own, false},
		"a container":                     {&runnerspec.DockerRunner{Common: runnerspec.Common{Type: runnerspec.Docker}}, executor.Place{}, "", "", true},
		"a pod":                           {&runnerspec.KubernetesRunner{Common: runnerspec.Common{Type: runnerspec.Kubernetes}}, executor.Place{}, "", "", false},
		"a process with a seed elsewhere": {&runnerspec.LocalRunner{Common: runnerspec.Common{Type: runnerspec.Local}}, executor.Place{Shared: true, Machine: true}, "ssm:/acme/seed", "ssm:/acme/seed", false},
		"a pod with a seed in a Secret":   {&runnerspec.KubernetesRunner{Common: runnerspec.Common{Type: runnerspec.Kubernetes}}, executor.Place{Store: runnerspec.StoreKubernetes}, "kubernetes:fairlead/seed", "kubernetes:fairlead/seed", false},
	} {
		a.executors.file.InstallKey = c.named
		by := &launcher{setup: launchconfig.Setup{Runner: c.runner}, place: c.place}
		in := by.placed(a.input(claimOf("job_1")))
		in.Operation = "plan"
		in.InstallKey = a.seedReference(by)
		step, err := a.describe(by, "job_1-1", in, "token")
		if err != nil {
			t.Fatal(err)
		}
		given := strings.Contains(strings.Join(step.Secrets, "|"), attempt.SeedVariable+"="+seed)
		if in.InstallKey != c.reference || given != c.given {
			t.Errorf("%s: reference %q, given %t", name, in.InstallKey, given)
		}
		if strings.Contains(string(step.Input)+strings.Join(step.Env, "|"), strings.TrimSpace(seed)) {
			t.Errorf("%s: the input or the environment that is not secret has the seed", name)
		}
		if stored := step.Stored["FAIRLEAD_GIVEN_666169726C6561642F73656564"]; (stored == "fairlead/seed") != (c.place.Store != "") {
			t.Errorf("%s: the place reads %q", name, step.Stored)
		}
	}
}

// Another agent of the same runner may have another folder. Two seeds of one runner cannot read each other's values.
func TestUsedDataFolderGetsNoSeed(t *testing.T) {
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, stepsFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeSeed(data); err != nil {
		t.Fatal(err)
	}
	if seeds, err := installseed.Read(data); err != nil || seeds != "" {
		t.Errorf("the seed is %q, %v", seeds, err)
	}
}

// The control plane compares the seeds of two runners before it moves an install. A heartbeat names them until one is accepted, and
// again after the customer changed them. The agent reads a secret store rarely, because that costs.
func TestHeartbeatNamesSeedsUntilItIsAccepted(t *testing.T) {
	const one, two = "OneOneOneOneOneOneOneOneOneOneOneOneOneOneOneOne", "TwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwoTwo"
	s := plane.New(t, plane.Options{})
	a, err := open(t.Context(), settings(t, s), Options{StepCommand: []string{"/bin/false"}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer a.lock.Close()
	now := time.Now()
	a.now = func() time.Time { return now }
	file := filepath.Join(t.TempDir(), "seed")
	write := func(seeds ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(seeds, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, seeds ...string) wire.SessionHeartbeat {
		t.Helper()
		var want []string
		if len(seeds) > 0 {
			if want, err = installkey.SeedIDs(strings.Join(seeds, "\n")); err != nil {
				t.Fatal(err)
			}
		}
		beat := a.report(t.Context())
		if !slices.Equal(beat.Seeds, want) {
			t.Errorf("%s: the heartbeat names %q, want %q", when, beat.Seeds, want)
		}
		return beat
	}
	expect("without a seed")
	write(one)
	a.executors.file.InstallKey = "file:" + file
	a.seedReport = seedReport{} // the agent's file is read at its start
	expect("at the start", one)
	a.reported(t.Context(), expect("no heartbeat was accepted", one), wire.SessionStatus{})
	expect("a heartbeat was accepted")
	now = now.Add(sendSeedsEvery)
	a.reported(t.Context(), expect("the control plane may have failed to store them", one), wire.SessionStatus{})
	write(two, one)
	expect("the store is not read again yet")
	now = now.Add(readSeedsEvery)
	a.reported(t.Context(), expect("the customer added a seed", two, one), wire.SessionStatus{})
	write("hunter2")
	now = now.Add(readSeedsEvery)
	expect("the seeds are not valid")
}
