package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// BenchmarkPlanAndApply runs a plan job and an apply job of a new component through a runner. It alternates them with the
// same commands of the tool alone, so that both measurements are made under the same load. "ratio" is the runner's time divided by the tool's.
func BenchmarkPlanAndApply(b *testing.B) {
	for name, path := range tofu.Tools(b) {
		for _, storage := range []string{"local", "http"} {
			b.Run(name+"/"+storage, func(b *testing.B) {
				s := plane.New(b, plane.Options{})
				startAgent(b, s, "", "FAIRLEAD_TOFU="+path)
				ref := s.Push(map[string]string{"main.tf": exampleModule})
				s.UntilFinished(s.Queue(planSpec(storage, ref))) // the runner learns the tool's version once
				var ours, bare []time.Duration
				for n := 0; b.Loop(); n++ {
					start := time.Now()
					sp := planSpec(storage, ref)
					sp.State.Key = fmt.Sprintf("ins_%d/web", n+2)
					sp.State.Path = "/runner/v1/state/" + sp.State.Key
					plan := s.UntilFinished(s.Queue(sp))
					ap := applySpec("apply", storage, ref, plan)
					ap.State = sp.State
					apply := s.UntilFinished(s.Queue(ap))
					if apply.Finish.Outcome != "succeeded" {
						b.Fatalf("%+v", *apply.Finish)
					}
					ours = append(ours, time.Since(start))
					start = time.Now()
					bareTool(b, path)
					bare = append(bare, time.Since(start))
				}
				b.ReportMetric(float64(median(ours))/1e6, "ours-ms")
				b.ReportMetric(float64(median(bare))/1e6, "bare-ms")
				b.ReportMetric(float64(median(ours))/float64(median(bare)), "ratio")
			})
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func bareTool(b *testing.B, path string) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(exampleModule), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, args := range []string{"init -input=false", "plan -input=false -out=p -var=name=one -var=password=x", "apply -input=false p"} {
		cmd := exec.Command(path, strings.Fields(args)...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CHECKPOINT_DISABLE=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v %s", args, err, out)
		}
	}
}

// BenchmarkCheck runs jobs that do nothing, each in a process of its own.
func BenchmarkCheck(b *testing.B) {
	s := plane.New(b, plane.Options{})
	startAgent(b, s, "", file("{type: local, concurrency: 4}"))
	s.UntilFinished(s.Queue(checkSpec()))
	const batch = 100
	start, n := time.Now(), 0
	for b.Loop() {
		var jobs []string
		for range batch {
			jobs = append(jobs, s.Queue(checkSpec()))
		}
		for _, job := range jobs {
			s.UntilFinished(job)
		}
		n += batch
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "jobs/s")
}
