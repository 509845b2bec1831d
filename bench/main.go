// Command bench measures the product against its goals and, where possible, against the
// bare tool in the same run. It starts the binaries in bin/ as a user does: a server,
// agents and their steps are separate processes. docs/contributing/benchmarks.md
// describes how bench measures each figure.
//
// It prints a table and writes bench/results.json. If a section fails, its figures keep
// their older values, the other sections run, and the exit code is 1. If other processes
// use the machine, bench refuses to measure, unless -force is set.
//
// With -smoke every section runs once with small counts. This checks that the benchmark
// works, and writes no results.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxOthers is the share of the machine, in percent, that other processes may use during
// a measurement. Above this share the figures depend too much on the other processes.
const maxOthers = 15

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// section is a group of figures that are measured together.
type section struct {
	name     string
	measures []string                            // names of the figures
	run      func(context.Context, *bench) error // measures the figures; nil: the function run measures them
}

func sections() []section {
	return []section{
		{"floor", []string{"sqlite_commit_ms_p50", "sqlite_commit_ms_p95", "fairlead_mib", "runner_mib"}, measureFloor},
		{"claim", []string{"claim_ms_p50", "claim_ms_p95", "claim_server_ms_p50", "claim_server_ms_p95", "create_ms_p50"}, measureClaim},
		{"check", []string{"check_ms_p50", "check_launch_ms_p50"}, measureCheck},
		{"start", []string{"step_start_cpu_ms", "step_full_start_cpu_ms"}, measureStart},
		{"noop", []string{"noop_jobs_per_s", "noop_concurrency", "noop_server_cpu_ms", "noop_agent_cpu_ms", "noop_step_cpu_ms"}, measureNoop},
		{"control", []string{"control_jobs_per_s", "control_server_cpu_ms", "control_caller_cpu_ms"}, measureControl},
		{"usecases", []string{"control_usecases_jobs_per_s", "control_usecases_cpu_ms"}, measureUseCases},
		{"recovery", []string{"recovery_ms_p50", "recovery_ms_max", "expire_last_s", "expire_claim_ms_p50", "expire_claim_ms_p95"}, measureRecovery},
		{"detect", []string{"dead_step_s_p50", "dead_step_s_max", "dead_host_s"}, measureDetect},
		{"deploy", append([]string{"deploy_ms", "deploy_bare_ms", "deploy_ratio", "deploy_tool_ms", "deploy_added_ms", "deploy_steps_cpu_ms", "deploy_bare_cpu_ms"}, deployParts()...), measureDeploy},
		{"queue", []string{"queue20_s", "queue20_bare_s", "queue20_ratio"}, measureQueue},
		{"graph", []string{"graph30_ratio", "unchanged30_ms"}, measureGraph},
		{"provider", []string{"refresh_ms", "refresh_bare_ms", "refresh_ratio"}, measureProvider},
		{"fifty", []string{"fifty_s", "fifty_median_ratio", "fifty_small_s"}, measureFifty},
		{"cluster", []string{"helm_ms", "helm_bare_ms", "helm_alone_ms", "helm_limit_ratio", "manifest_ms", "manifest_bare_ms", "manifest_alone_ms", "manifest_limit_ratio", "kubernetes_approvals"}, measureCluster},
		{"image", []string{"image_s", "image_bare_s", "image_ratio", "image_rss_mib"}, measureImage},
		{"log", []string{"log_ms_p50", "log_ms_p95"}, measureLog},
		{"compete", []string{"compete_claim_ms_p50", "compete_claim_ms_p95", "compete_jobs_per_s", "compete_repeated_jobs"}, measureCompetition},
		{"flood", []string{"flood_claim_ms_p99", "flood_added_ms_p99", "flood_requests_per_s"}, measureFlood},
		{"crowd", []string{"crowd_server_rss_mib", "crowd_server_cpu_percent", "crowd_agents_cpu_percent"}, measureCrowd},
		{"placement", []string{"placement_ms_p50", "placement_ms_p95", "placement_read_ms_p50"}, measurePlacement},
		{"units", []string{"write_units_per_job", "write_units_per_job_shop", "write_units_per_renewal", "write_units_per_heartbeat"}, measureUnits},
		{"aws", []string{"aws_idle_install_dollars", "aws_job_dollars", "aws_jobs_dollars"}, measureAWS},
		{"idle", []string{"agent_rss_mib", "clusters_agent_rss_mib", "agent_idle_cpu_percent", "server_rss_mib", "server_idle_cpu_percent"}, measureIdle},
		{"machine", []string{"cpus", "load_average", "other_cpu_percent"}, nil},
	}
}

// bench is the state that all sections share.
type bench struct {
	report
	counts  counts
	root    string // root folder of the repository
	work    string // folder for all created files
	tool    string // path of OpenTofu or Terraform
	profile string // folder for CPU profiles; "": none
	notes   io.Writer
	// countedFile is the file for measureAWS's counts; "": none.
	countedFile string
}

func (b *bench) note(format string, args ...any) { fmt.Fprintf(b.notes, "  "+format+"\n", args...) }

// path returns a path below the repository's root.
func (b *bench) path(elem ...string) string {
	return filepath.Join(append([]string{b.root}, elem...)...)
}

// profiled runs fn. If b.profile is set, it writes a CPU profile of this process.
func (b *bench) profiled(name string, fn func() error) (err error) {
	if b.profile == "" {
		return fn()
	}
	f, err := os.Create(filepath.Join(b.profile, name+".pprof"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure these `SECTIONS` (names separated by commas) and write no results")
	force := flags.Bool("force", false, "measure and write results even on a busy machine")
	out := flags.String("out", "bench/results.json", "`FILE` for the results")
	smokeRun := flags.Bool("smoke", false, "run every section once with small counts, even on a busy machine, and write no results")
	profile := flags.String("cpuprofile", "", "write CPU profiles of this process into `DIR` and write no results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	b := &bench{report: report{values: map[string]float64{}}, counts: full(), profile: *profile, notes: stderr}
	if b.root, err = os.Getwd(); err != nil {
		return err
	}
	b.countedFile = b.path("bench", "aws.json")
	if *smokeRun {
		b.counts, b.countedFile, *force = smoke(), "", true
	}
	for _, name := range []string{"bin/fairlead", "bin/fairlead-runner", "bin/fairlead-step", "bin/fairlead-runner-clusters"} {
		if _, err := os.Stat(b.path(name)); err != nil {
			return fmt.Errorf("%w; run `make bench` in the root of the repository", err)
		}
	}
	if b.tool, err = exec.LookPath(cmp.Or(os.Getenv("FAIRLEAD_TOFU"), "tofu")); err != nil {
		return fmt.Errorf("%w; set FAIRLEAD_TOFU", err)
	}
	if b.work, err = os.MkdirTemp("", "fairlead-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()

	older, err := readResults(*out)
	if err != nil {
		return err
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	b.set("load_average", load)
	b.set("cpus", float64(runtime.NumCPU()))
	fmt.Fprintf(stderr, "%s, %d cores, load average %.2f\n", cpuModel(), runtime.NumCPU(), load)
	if err := quiet(ctx, b.counts.watchFor, *force, stderr); err != nil {
		return err
	}
	watch, err := observe()
	if err != nil {
		return err
	}
	o := b.measure(ctx, chosen)
	defer func() { err = errors.Join(o.err(), err) }()
	others, err := watch.others()
	if err != nil {
		return err
	}
	b.set("other_cpu_percent", others)
	results, _ := b.figures()
	if *smokeRun {
		fmt.Fprintln(stdout, "This was a smoke run with small counts: it checks that bench works, and its values mean nothing.")
	}
	if *smokeRun || *only != "" || *profile != "" {
		return writeTable(stdout, results)
	}
	results = withOlder(results, older)
	if err := writeTable(stdout, results); err != nil {
		return err
	}
	return save(*out, results, o.measured, others, *force)
}

// save writes the results. It returns an error and keeps the file if no section was
// measured, or if other processes used more than maxOthers percent of the machine and
// force is false.
func save(out string, results []Result, measured int, others float64, force bool) error {
	switch {
	case measured == 0:
		return fmt.Errorf("no section was measured: %s was not changed", out)
	case others > maxOthers && !force:
		return fmt.Errorf("other processes used %.0f %% of the machine during the run: %s was not changed; use -force to write it", others, out)
	}
	return writeResults(out, results)
}

// outcome is the result of a run of sections.
type outcome struct {
	measured    int // sections that recorded all of their figures
	failed      []failure
	unmeasured  []string // sections that did not end, or did not start, because the run was interrupted
	interrupted error    // cause of the interruption
}

type failure struct {
	section string
	err     error
}

// err returns nil if every section was measured, or an error that names the sections that
// were not measured.
func (o outcome) err() error {
	var errs []error
	if len(o.failed) > 0 {
		var names []string
		for _, f := range o.failed {
			names = append(names, f.section)
			errs = append(errs, fmt.Errorf("%s: %w", f.section, f.err))
		}
		errs = append(errs, fmt.Errorf("sections that failed: %s", strings.Join(names, ", ")))
	}
	if len(o.unmeasured) > 0 {
		errs = append(errs, fmt.Errorf("not measured: %s: %w", strings.Join(o.unmeasured, ", "), o.interrupted))
	}
	return errors.Join(errs...)
}

// measure runs the sections one after the other until ctx ends. If a section fails or
// does not record all of its figures, measure discards the figures of that section.
func (b *bench) measure(ctx context.Context, sections []section) outcome {
	var o outcome
	for _, s := range sections {
		if s.run == nil {
			continue
		}
		if ctx.Err() != nil {
			o.unmeasured, o.interrupted = append(o.unmeasured, s.name), context.Cause(ctx)
			continue
		}
		fmt.Fprintf(b.notes, "%s:\n", s.name)
		began := time.Now()
		err := s.run(ctx, b)
		if missing := b.missing(s.measures); err == nil && len(missing) > 0 {
			err = fmt.Errorf("the section did not measure %s", strings.Join(missing, ", "))
		}
		if err == nil {
			o.measured++
			b.note("took %.1f s", time.Since(began).Seconds())
			continue
		}
		b.discard(s.measures)
		if ctx.Err() != nil {
			o.unmeasured, o.interrupted = append(o.unmeasured, s.name), context.Cause(ctx)
			continue
		}
		o.failed = append(o.failed, failure{s.name, err})
		b.note("failed: %v", err)
	}
	return o
}

// quiet observes the machine for the duration watchFor. If other processes use more than
// maxOthers percent of the machine, quiet returns an error. If force is true, it prints a
// warning instead.
func quiet(ctx context.Context, watchFor time.Duration, force bool, stderr io.Writer) error {
	watch, err := observe()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(watchFor):
	}
	others, err := watch.others()
	if err != nil {
		return err
	}
	if others <= maxOthers {
		return nil
	}
	if !force {
		return fmt.Errorf("other processes use %.0f %% of the machine, so the figures would be wrong: wait, or use -force", others)
	}
	fmt.Fprintf(stderr, "other processes use %.0f %% of the machine: the figures are worse than on an idle machine\n", others)
	return nil
}

// choose returns the sections that the parameter only names. It is a list separated by
// commas. If it is "", choose returns all sections.
func choose(only string) ([]section, error) {
	all := sections()
	if only == "" {
		return all, nil
	}
	var chosen []section
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no section has the name %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
