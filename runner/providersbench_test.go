package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// providerTimes are the figures of BenchmarkProviders, in milliseconds and bytes. Package bench
// shows them.
type providerTimes struct {
	Unpacked int64 `json:"unpacked_bytes"`
	Packed   int64 `json:"packed_bytes"`
	// From the queued job until the tool can start, on an empty disk: without a mirror, with an empty mirror, and with the
	// archive in the mirror.
	Registry int64 `json:"registry_ms"`
	First    int64 `json:"first_ms"`
	Mirror   int64 `json:"mirror_ms"`
}

// BenchmarkProviders measures how long a plan with the provider hashicorp/aws takes on an empty disk from its queue until the tool
// has its provider. It alternates the cases, so that all are measured under the same load. Registry and bucket are on this machine, so a download takes no time of a network.
func BenchmarkProviders(b *testing.B) {
	built, out := os.Getenv("FAIRLEAD_AWS_PROVIDER"), os.Getenv("FAIRLEAD_BENCH_PROVIDERS")
	path := os.Getenv("FAIRLEAD_TOFU")
	if built == "" || path == "" {
		b.Skip("FAIRLEAD_AWS_PROVIDER and FAIRLEAD_TOFU are not set; run `make bench-aws`")
	}
	programs, err := filepath.Glob(filepath.Join(built, "registry.opentofu.org/hashicorp/aws/*", runtime.GOOS+"_"+runtime.GOARCH, "terraform-provider-aws_v*"))
	if err != nil || len(programs) != 1 {
		b.Fatalf("%s has the providers %q, %v; want one", built, programs, err)
	}
	version := filepath.Base(filepath.Dir(filepath.Dir(programs[0])))
	archive := filepath.Join(b.TempDir(), fmt.Sprintf("terraform-provider-aws_%s_%s_%s.zip", version, runtime.GOOS, runtime.GOARCH))
	times := providerTimes{Unpacked: size(b, programs[0])}
	pack(b, archive, programs[0])
	times.Packed = size(b, archive)
	registry := tofu.NewRegistry(b, archive)
	store := newBucket(b, "providers-bench", true)
	s := plane.New(b, plane.Options{Stack: true})
	ref := s.Push(map[string]string{"main.tf": "terraform {\n  required_providers {\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\nresource \"terraform_data\" \"x\" {}\n",
		".terraform.lock.hcl": fmt.Sprintf("provider \"registry.opentofu.org/hashicorp/aws\" {\n  version = %q\n  hashes  = [%q]\n}\n", version, registry.Hash)})
	sp := planSpec("http", ref)
	sp.Vars, sp.Env = nil, map[string]string{"AWS_ENDPOINT_URL_S3": store.endpoint}
	object := "providers/registry.opentofu.org/hashicorp/aws/" + filepath.Base(archive)

	cases := []struct {
		name      string
		mirror    string
		clear     bool
		downloads int
		median    *int64
		all       []time.Duration
	}{
		{name: "registry", downloads: 1, median: &times.Registry},
		{name: "first", mirror: "s3://providers-bench/providers", clear: true, downloads: 1, median: &times.First},
		{name: "mirror", mirror: "s3://providers-bench/providers", median: &times.Mirror},
	}
	for b.Loop() {
		for i := range cases {
			c := &cases[i]
			if c.clear {
				store.remove(object)
			}
			a := startAgent(b, s, "", append(inStack(b, store.endpoint), "FAIRLEAD_TOFU="+path, "FAIRLEAD_TF_CLI_CONFIG_FILE="+registry.Config, "FAIRLEAD_PROVIDER_MIRROR="+c.mirror)...)
			s.UntilFinished(s.Queue(checkSpec())) // the agent works
			before := registry.Downloads()
			c.all = append(c.all, untilInit(b, s, sp))
			if n := registry.Downloads() - before; n != c.downloads {
				b.Fatalf("%s: %d downloads, want %d", c.name, n, c.downloads)
			}
			a.kill()
		}
	}
	for _, c := range cases {
		slices.Sort(c.all)
		*c.median = c.all[len(c.all)/2].Milliseconds()
		b.ReportMetric(float64(*c.median), c.name+"-ms/job")
	}
	text, err := json.MarshalIndent(times, "", "  ")
	if err == nil && out != "" {
		err = os.WriteFile(out, append(text, '\n'), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%s", text)
}

// untilInit queues the job, and returns the time until the end of its `init`. It waits until the job has finished.
func untilInit(b *testing.B, s *plane.Plane, sp events.JobSpec) (d time.Duration) {
	b.Helper()
	began := time.Now()
	job := s.Queue(sp)
	s.Until("the end of init", func() bool {
		j := s.Job(job)
		for log := j.Log; ; {
			_, mark, rest := wire.CutLogMark(log)
			if mark == nil {
				return j.Finish != nil
			}
			if log = rest; mark.End {
				d = time.Since(began)
				return true
			}
		}
	})
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || d == 0 {
		b.Fatalf("the plan ended as %+v:\n%s", *j.Finish, j.Log)
	}
	return d
}

func size(b *testing.B, path string) int64 {
	b.Helper()
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return st.Size()
}

// pack writes a compressed archive of the program, like those of a registry.
func pack(b *testing.B, path, program string) {
	b.Helper()
	in, err := os.Open(program)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	z := zip.NewWriter(out)
	h := &zip.FileHeader{Name: filepath.Base(program), Method: zip.Deflate}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, in)
	}
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		b.Fatal(err)
	}
}
