package awstest

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/program"
)

// spread is a measured time of several runs, in milliseconds. Package bench shows it.
type spread struct {
	Runs   int   `json:"runs"`
	Median int64 `json:"median_ms"`
	Max    int64 `json:"max_ms"`
}

// samples are measured times, by their names in the file of figures.
type samples map[string][]time.Duration

func (s samples) add(name string, d ...time.Duration) { s[name] = append(s[name], d...) }

// report reports the spreads. If the variable names a file, it writes them there together with the
// sizes.
func (s samples) report(b *testing.B, variable string, sizes map[string]int64) {
	b.Helper()
	out := map[string]any{}
	for name, size := range sizes {
		out[name] = size
	}
	for name, all := range s {
		slices.Sort(all)
		one := spread{len(all), all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds()}
		out[name] = one
		b.ReportMetric(float64(one.Median), name+"-ms-p50")
		b.ReportMetric(float64(one.Max), name+"-ms-max")
	}
	b.ReportMetric(0, "ns/op") // removes the mean of whole runs
	text, err := json.MarshalIndent(out, "", "  ")
	if file := os.Getenv(variable); err == nil && file != "" {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%s", text)
}

// clocked writes a tool that notes the time in the job's log each time it starts, and then is the
// real tool.
func clocked(b *testing.B) []string {
	b.Helper()
	real, path := os.Getenv("FAIRLEAD_TOFU"), filepath.Join(b.TempDir(), "tofu")
	program.Write(b, path, []byte("#!/bin/sh\ncase $1 in plan | apply) date \"+clock-$1=%s%N\" >&2 ;; esac\nexec '"+real+"' \"$@\"\n"))
	return []string{"FAIRLEAD_TOFU=" + path, "FAIRLEAD_READABLE=" + filepath.Dir(real)}
}

// app writes an app with one component, web, and publishes it.
func (w *world) app(name string, module map[string]string) {
	w.t.Helper()
	dir := w.t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(dir, "web"), 0o755),
		os.WriteFile(filepath.Join(dir, "app.yaml"), []byte("fairlead: v1\nname: "+name+"\ncomponents:\n  web:\n    type: terraform\n    source: ./web\n"), 0o644))
	for file, text := range module {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "web", file), []byte(text), 0o644))
	}
	w.ok("write the app", err)
	w.cli("app", "apply", dir)
}

// measured is an install on which a benchmark measures jobs.
type measured struct {
	*world
	*client.Client
	name     string
	customer *customer
	stop     func()
}

// measured creates an install and the runner's stack in its customer's account.
func (w *world) measured(app, name string, chosen map[string]string, environ ...string) *measured {
	w.t.Helper()
	api, err := client.New("https://"+planeHost, w.token, client.Options{HTTP: &http.Client{Transport: hosts.Transport(w.t, w.authority, w.proxy)}})
	w.ok("make a client", err)
	w.cli("install", "create", name, "--app", app, "--account", accountID, "--region", region)
	m := &measured{world: w, Client: api, name: name}
	m.customer, m.stop = w.installStackWith(name, chosen, environ...)
	w.eventually("the stack is online", func() bool { return ask[wire.Stack](w, "install", "stack", name).State == "online" })
	return m
}

// deploy deploys the install, and returns its plan as soon as that has ended, and its apply; the
// apply may still run.
func (m *measured) deploy(ctx context.Context, planOnly bool) (d wire.Deployment, jobs map[string]wire.Job) {
	m.account.t.Helper()
	d, err := m.CreateDeployment(ctx, m.name, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true, PlanOnly: planOnly})
	jobs = map[string]wire.Job{}
	for {
		m.ok("deploy", err)
		page, err := m.ListJobs(ctx, client.JobFilter{Deployment: d.ID}, client.ListOptions{})
		m.ok("list the jobs", err)
		for _, j := range page.Items {
			jobs[j.Operation] = j
		}
		if planOnly && d.Done() || jobs["apply"].ID != "" {
			return d, jobs
		}
		if d.Done() {
			m.account.t.Fatalf("the deployment is %s without an apply: %s", d.State, d.Message)
		}
		d, err = m.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
		m.ok("wait for the deployment", err)
	}
}

// untilDone waits until the deployment has ended.
func (m *measured) untilDone(ctx context.Context, d wire.Deployment) wire.Deployment {
	m.account.t.Helper()
	for err := error(nil); !d.Done(); m.ok("wait for the deployment", err) {
		d, err = m.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	return d
}

// reader reads a job's log, and knows when it has seen each part.
type reader struct {
	*measured
	job           string
	epoch, offset int64
	text          []byte
	seen          int // number of stamps that stamps has returned
}

// read reads what the log has, and waits at most so long for it.
func (r *reader) read(ctx context.Context, wait time.Duration) (done bool) {
	r.account.t.Helper()
	chunk, err := r.ReadJobLog(ctx, r.job, r.epoch, r.offset, wait)
	r.ok("read the log", err)
	r.epoch, r.offset, r.text = chunk.Epoch, chunk.Next, append(r.text, chunk.Data...)
	return chunk.Done
}

var (
	stamp = regexp.MustCompile(`tick=([0-9]{19})`)
	pid   = regexp.MustCompile(`pid=([0-9]+)\n`)
	plans = regexp.MustCompile(`clock-plan=([0-9]{19})`)
)

// ages returns the ages of the ticks that are new in the log.
func (r *reader) ages(now time.Time) (ages []time.Duration) {
	all := stamp.FindAllSubmatch(r.text, -1)
	for _, m := range all[r.seen:] {
		ages = append(ages, now.Sub(instant(m[1])))
	}
	r.seen = len(all)
	return ages
}

// instant returns the time of a number of nanoseconds since 1970.
func instant(digits []byte) time.Time {
	n, _ := strconv.ParseInt(string(digits), 10, 64) // the expression matches only digits
	return time.Unix(0, n)
}

// toolStart waits for the end of a job's log, and returns when its tool began to plan: its
// providers are installed then.
func (m *measured) toolStart(ctx context.Context, job string) time.Time {
	m.account.t.Helper()
	r := &reader{measured: m, job: job}
	for !r.read(ctx, 20*time.Second) {
	}
	found := plans.FindSubmatch(r.text)
	if found == nil {
		m.account.t.Fatalf("the log has no time of the plan:\n%s", r.text)
	}
	return instant(found[1])
}

// process waits for the line with the identifier of the process that the tool started, and returns
// the identifier.
func (r *reader) process(ctx context.Context) int {
	r.account.t.Helper()
	for {
		if m := pid.FindSubmatch(r.text); m != nil {
			n, err := strconv.Atoi(string(m[1]))
			r.ok("read the identifier of a process", err)
			return n
		}
		if r.read(ctx, 0) {
			r.account.t.Fatalf("the job has ended, and its log has no identifier of a process:\n%s", r.text)
		}
	}
}

// watched is how long a benchmark reads a log with and without a follower.
const watched = 8 * time.Second

// BenchmarkTimes measures what a person waits for, through the functions of the stack, its queues,
// table and log groups, and a task of the customer's stack for each job: from the claim of a job to
// its task and its tool, from a line of the tool to a reader of the API, and from a cancellation to
// the end of the process that the tool runs. The servers here have no network between them, and the
// image of a task is there already.
func BenchmarkTimes(b *testing.B) {
	w := deployWorld(b)
	defer w.close()
	w.app("clock", map[string]string{"main.tf": `resource "terraform_data" "ticks" {
  triggers_replace = timestamp()
  provisioner "local-exec" {
    command = "echo pid=$$; while true; do date +tick=%s%N; sleep 0.13; done"
  }
}
`})
	m, ctx, s := w.measured("clock", "acme", nil, clocked(b)...), b.Context(), samples{}
	defer m.stop()
	for b.Loop() {
		d, jobs := m.deploy(ctx, false)
		plan := jobs["plan"]
		task := m.tasks.Started(fmt.Sprintf("%s-%d", plan.ID, plan.Epoch))
		if task.IsZero() {
			b.Fatalf("the plan %s ran in no task of its own", plan.ID)
		}
		s.add("claim_to_task", task.Sub(*plan.ClaimedAt))
		s.add("claim_to_tool", m.toolStart(ctx, plan.ID).Sub(*plan.ClaimedAt))

		r := &reader{measured: m, job: jobs["apply"].ID}
		process := r.process(ctx)
		r.ages(time.Now()) // these were written before this reader began
		for end := time.Now().Add(watched); time.Now().Before(end); {
			r.read(ctx, 0)
			s.add("line_to_reader", r.ages(time.Now())...)
		}
		r.read(ctx, 20*time.Second) // the step hears of its first follower when it renews its lease
		// A step looks for a cancellation every 1.5 s. Each run cancels at another moment between two looks: a fixed one could always be a good one.
		phase := time.Duration(len(s["cancel_to_interrupt"])%9) * 1500 * time.Millisecond / 9
		for end := time.Now().Add(2*watched + phase); time.Now().Before(end); {
			r.read(ctx, 20*time.Second)
			if ages := r.ages(time.Now()); time.Until(end) < watched {
				s.add("line_to_follower", ages...)
			}
		}

		began := time.Now()
		_, err := m.CancelJob(ctx, r.job)
		w.ok("cancel", err)
		for tick := time.NewTicker(time.Millisecond); syscall.Kill(process, 0) == nil; {
			<-tick.C
		}
		s.add("cancel_to_interrupt", time.Since(began))
		if end := m.untilDone(ctx, d); end.State == "succeeded" {
			b.Fatal("the deployment succeeded, although its apply was cancelled")
		}
	}
	s.report(b, "FAIRLEAD_BENCH_TIMES", nil)
}

// networkRate is the rate of the download of a provider in bytes a second, for the figures that have
// one: 100 Mbit/s, which a small NAT instance or a shared line gives.
const networkRate = 100e6 / 8

// fullProvider is the size of hashicorp/aws with all services, unpacked. The provider here has few of them, because to compile all takes more than an
// hour. Copies of its own bytes make it as large: an archive compresses them as well as the rest, as it finds no repetition farther away than
// 32 KiB.
const fullProvider = 700e6

// BenchmarkProviders measures the time from the claim of a plan until its tool has the provider
// hashicorp/aws and plans: from a registry on this machine, from one behind a line of networkRate,
// and through the mirror in the bucket of the customer's stack. Each job has a task with an empty
// disk, except in the last case: there jobs are processes in the agent's task, whose disk has the
// provider. Each task has half a CPU, the default of the customer's stack. It takes the cases in turn, so that all are measured under the same load.
func BenchmarkProviders(b *testing.B) {
	built := os.Getenv("FAIRLEAD_AWS_PROVIDER")
	if built == "" {
		b.Skip("FAIRLEAD_AWS_PROVIDER is not set; run `make bench-aws`")
	}
	s, sizes := samples{}, map[string]int64{}
	done := b.Run("few-services", func(b *testing.B) { measureProvider(b, built, 0, "", s, sizes) }) &&
		b.Run("all-services", func(b *testing.B) { measureProvider(b, built, fullProvider, "full_", s, sizes) })
	if done && len(s) > 0 {
		s.report(b, "FAIRLEAD_BENCH_PROVIDERS", sizes)
	}
}

// measureProvider measures a provider of at least so many bytes, unpacked. prefix is that of the names of its figures.
func measureProvider(b *testing.B, built string, least int64, prefix string, s samples, sizes map[string]int64) {
	cpu, err := ecstest.NewShares(b)
	if err != nil {
		b.Skipf("a task here cannot have half a CPU: %v", err)
	}
	archive, version, unpacked := packProvider(b, built, least)
	registry := tofu.NewRegistry(b, archive)
	stat, err := os.Stat(archive)
	if err != nil {
		b.Fatal(err)
	}
	content, err := dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		b.Fatal(err)
	}
	sizes[prefix+"packed_bytes"], sizes[prefix+"unpacked_bytes"] = stat.Size(), unpacked
	w := deployWorld(b)
	defer w.close()
	w.tasks.CPU = cpu
	w.app("provided", map[string]string{"main.tf": `terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}
resource "terraform_data" "x" {}
`, ".terraform.lock.hcl": fmt.Sprintf("provider \"registry.opentofu.org/hashicorp/aws\" {\n  version = %q\n  hashes  = [%q, %q]\n}\n", version, content, registry.Hash)})
	environ := append(clocked(b), "FAIRLEAD_TF_CLI_CONFIG_FILE="+registry.Config)
	mirrored := w.measured("provided", "acme", nil, environ...)
	defer mirrored.stop()
	direct := w.measured("provided", "direct", nil, append(environ, "FAIRLEAD_PROVIDER_MIRROR=")...)
	defer direct.stop()
	warm := w.measured("provided", "warm", map[string]string{"Isolation": "Process"}, environ...)
	defer warm.stop()
	warm.deploy(b.Context(), true) // takes the provider to its disk
	objects, bucket := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true }), mirrored.customer.ref("StateBucket")
	object := "providers/registry.opentofu.org/hashicorp/aws/" + filepath.Base(archive)

	ctx := b.Context()
	for b.Loop() {
		for _, c := range []struct {
			name      string
			on        *measured
			rate      int64 // of the registry
			forget    bool  // the mirror
			downloads int
		}{
			{"registry", direct, 0, false, 1},
			{"registry_line", direct, networkRate, false, 1},
			{"mirror_first", mirrored, 0, true, 1},
			{"mirror", mirrored, 0, false, 0},
			{"warm_disk", warm, 0, false, 0},
		} {
			if c.forget {
				_, err := objects.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String(object)})
				w.ok("empty the mirror", err)
			}
			registry.Limit(c.rate)
			before := registry.Downloads()
			d, jobs := c.on.deploy(ctx, true)
			if d.State != "succeeded" {
				b.Fatalf("%s: the deployment is %s: %s", c.name, d.State, d.Message)
			}
			if n := registry.Downloads() - before; n != c.downloads {
				b.Fatalf("%s: %d downloads, want %d", c.name, n, c.downloads)
			}
			s.add(prefix+c.name, c.on.toolStart(ctx, jobs["plan"].ID).Sub(*jobs["plan"].ClaimedAt))
		}
	}
	if !cpu.Throttled() {
		b.Error("no task has used up its half of a CPU")
	}
	b.ReportMetric(0, "ns/op") // removes the mean of whole runs
}

// packProvider writes a compressed archive of the provider in the mirror, like those of a registry. It appends copies of the
// program to itself until it has at least so many bytes; the kernel ignores what follows a program in its file.
func packProvider(b *testing.B, mirror string, least int64) (archive, version string, unpacked int64) {
	b.Helper()
	programs, err := filepath.Glob(filepath.Join(mirror, "registry.opentofu.org/hashicorp/aws/*", runtime.GOOS+"_"+runtime.GOARCH, "terraform-provider-aws_v*"))
	if err != nil || len(programs) != 1 {
		b.Fatalf("%s has the providers %q, %v; want one", mirror, programs, err)
	}
	version = filepath.Base(filepath.Dir(filepath.Dir(programs[0])))
	archive = filepath.Join(b.TempDir(), fmt.Sprintf("terraform-provider-aws_%s_%s_%s.zip", version, runtime.GOOS, runtime.GOARCH))
	in, err := os.Open(programs[0])
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(archive)
	if err != nil {
		b.Fatal(err)
	}
	z := zip.NewWriter(out)
	h := &zip.FileHeader{Name: filepath.Base(programs[0]), Method: zip.Deflate}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	for again := err == nil; again; again = err == nil && unpacked < least {
		var n int64
		if _, err = in.Seek(0, io.SeekStart); err == nil {
			n, err = io.Copy(w, in)
			unpacked += n
		}
	}
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		b.Fatal(err)
	}
	return archive, version, unpacked
}
