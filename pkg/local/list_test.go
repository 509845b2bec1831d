package local_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/tools/program"
)

// jobsOf starts a control plane with n ended plan jobs, and returns it with a client.
func jobsOf(t testing.TB, n int) (s *local.Server, c *client.Client) {
	t.Helper()
	s, err := local.Start(t.Context(), local.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil { // the test's context has ended
			t.Errorf("close the server: %v", err)
		}
	})
	control := s.Control()
	at := time.Now().Add(-time.Hour)
	for made := 0; made < n; {
		tx := &store.Tx{}
		for range min(100, n-made) { // the maximum of one commit
			at, made = at.Add(time.Millisecond), made+1
			j := job.New(fairlead.JobID(fairlead.RandomIDs(func() time.Time { return at })(fairlead.PrefixJob)), job.OpPlan, at)
			for _, e := range []job.Event{{Kind: job.Claim, At: at.Add(time.Millisecond), Session: "ses_1"},
				{Kind: job.Start, At: at.Add(2 * time.Millisecond), Step: "step-1"}, {Kind: job.Succeed, At: at.Add(time.Second)}} {
				if e.Kind != job.Claim {
					e.Epoch = j.Lease.Epoch
				}
				if j, err = job.Apply(j, e); err != nil {
					t.Fatal(err)
				}
			}
			j.Org, j.Component, j.Deployment = fairlead.DefaultOrg, "network", "dep_01m7xnbkpafe7rzm5stskxn87s"
			tx.PutJob(store.Stored[store.Job]{V: store.Job{Job: j, InstallName: "acme", RunnerName: "local",
				Plan: &store.Plan{Digest: "sha256:" + strings.Repeat("0", 64), Changes: deployment.Changes{Add: 1}}}})
		}
		if err := control.Store.Commit(t.Context(), fmt.Sprintf("seed-%d", made), tx); err != nil {
			t.Fatal(err)
		}
	}
	token, err := os.ReadFile(s.TokenFile())
	if err == nil {
		c, err = client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// Formerly a listing of 10,000 jobs took 110 requests.
func TestManyJobsAreListedInFewPages(t *testing.T) {
	_, c := jobsOf(t, 2500)
	seen, pages := map[string]bool{}, 0
	for o := (client.ListOptions{Limit: 1000}); ; pages++ {
		p, err := c.ListJobs(t.Context(), client.JobFilter{}, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Items {
			seen[j.ID] = true
		}
		if o.Cursor = p.Next; p.Next == "" {
			break
		}
	}
	if len(seen) != 2500 || pages != 2 {
		t.Errorf("%d jobs on %d pages before the last, want 2500 on 2", len(seen), pages)
	}
	if _, err := c.ListJobs(t.Context(), client.JobFilter{}, client.ListOptions{Limit: 1001}); !client.HasStatus(err, 422) {
		t.Errorf("a page of 1,001 jobs: %v", err)
	}
	if _, err := c.ListApps(t.Context(), client.ListOptions{Limit: 1000}); !client.HasStatus(err, 422) {
		t.Errorf("a page of 1,000 apps: %v", err)
	}
}

// listed is the output of `fairlead job list`.
type listed struct {
	lines  int
	stderr string
	cpu    time.Duration // processor time of the program
}

// jobList runs the CLI as a process.
func jobList(t testing.TB, s *local.Server, args ...string) listed {
	t.Helper()
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(program.Folder(t, "cmd/fairlead"), "fairlead"), append([]string{"job", "list"}, args...)...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_URL="+s.URL(), "FAIRLEAD_TOKEN="+strings.TrimSpace(string(token)))
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		t.Fatalf("fairlead job list %q: %v\n%s", args, err, problem.String())
	}
	return listed{bytes.Count(out.Bytes(), []byte("\n")), problem.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

// Formerly the command printed the whole, ever-growing list each time.
func TestJobListPrintsTheNewestHundred(t *testing.T) {
	s, _ := jobsOf(t, 1001)
	const more = "These are the newest 100. --all prints all of them.\n"
	for _, tt := range []struct {
		args  []string
		lines int // with the heading
		note  string
	}{
		{nil, 101, more},
		{[]string{"--limit", "3"}, 4, ""},
		{[]string{"--limit", "1001"}, 1002, ""}, // a full page, and a page with a single job
		{[]string{"--all"}, 1002, ""},
	} {
		if got := jobList(t, s, tt.args...); got.lines != tt.lines || got.stderr != tt.note {
			t.Errorf("fairlead job list %q: %d lines and %q, want %d and %q", tt.args, got.lines, got.stderr, tt.lines, tt.note)
		}
	}
}

// ownCPU returns the processor time of this process, which is the server.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The benchmark measures whole runs of the program. One run prints the newest 100 of
// 10,000 jobs, the other prints all 10,000. The limits on two idle cores are 50 ms and
// 300 ms. On a busy machine ns/op is not reliable: use best-ms, the fastest run, and the
// processor times, which count only this benchmark's processes. The server runs in this
// process, so its time is the time of this process. This process collects garbage as
// rarely as `fairlead server`.
func BenchmarkJobList(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	s, _ := jobsOf(b, 10_000)
	program.Folder(b, "cmd/fairlead") // build the program before the measurement
	run := func(b *testing.B, lines int, args ...string) {
		var cpu, best time.Duration
		before := ownCPU(b)
		for b.Loop() {
			start := time.Now()
			got := jobList(b, s, args...)
			if took := time.Since(start); best == 0 || took < best {
				best = took
			}
			if cpu += got.cpu; got.lines != lines {
				b.Fatalf("%d lines, want %d", got.lines, lines)
			}
		}
		perRun := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
		b.ReportMetric(best.Seconds()*1000, "best-ms")
		b.ReportMetric(perRun(cpu), "program-cpu-ms/op")
		b.ReportMetric(perRun(ownCPU(b)-before), "server-cpu-ms/op")
	}
	b.Run("newest", func(b *testing.B) { run(b, 101) })
	b.Run("all", func(b *testing.B) { run(b, 10_001, "--all") })
}
