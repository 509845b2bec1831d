// Command bench measures the product against its goals and, where there is
// something to compare with, against the bare tool in the same run. It starts
// the binaries in bin/ as a user would: a server, agents and their steps are
// processes of their own. docs/contributing/benchmarks.md says how each figure is measured.
//
// It prints a table and writes bench/results.json. After a section that fails
// the others run, its figures keep their older values, and the exit code is 1.
// On a machine that is busy with something else it refuses, unless -force is
// given.
//
// With -smoke every section runs once, as short as it can be: it shows that the
// benchmark works, and writes nothing.
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

// maxOthers is the share of the machine, in percent, that others may use while
// it is measured. Above it, figures say more about them than about us.
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
	measures []string
	run      func(context.Context, *bench) error // nil: what is around the sections measures them
}

func sections() []section {
	return []section{
		{"floor", []string{"sqlite_commit_ms_p50", "sqlite_commit_ms_p95", "fairlead_mib", "runner_mib"}, measureFloor},
		{"claim", []string{"claim_ms_p50", "claim_ms_p95", "claim_server_ms_p50", "claim_server_ms_p95", "create_ms_p50"}, measureClaim},
		{"check", []string{"check_ms_p50", "check_launch_ms_p50"}, measureCheck},
		{"noop", []string{"noop_jobs_per_s", "noop_concurrency", "noop_server_cpu_ms", "noop_agent_cpu_ms", "noop_step_cpu_ms"}, measureNoop},
		{"control", []string{"control_jobs_per_s", "control_server_cpu_ms", "control_caller_cpu_ms"}, measureControl},
		{"usecases", []string{"control_usecases_jobs_per_s", "control_usecases_cpu_ms"}, measureUseCases},
		{"recovery", []string{"recovery_ms_p50", "recovery_ms_max", "expire_last_s", "expire_claim_ms_p50", "expire_claim_ms_p95"}, measureRecovery},
		{"detect", []string{"dead_step_s_p50", "dead_step_s_max", "dead_host_s", "lost_wakeup_s"}, measureDetect},
		{"deploy", append([]string{"deploy_ms", "deploy_bare_ms", "deploy_ratio", "deploy_tool_ms", "deploy_added_ms"}, deployParts()...), measureDeploy},
		{"queue", []string{"queue20_s", "queue20_bare_s", "queue20_ratio"}, measureQueue},
		{"log", []string{"log_ms_p50", "log_ms_p95"}, measureLog},
		{"compete", []string{"compete_claim_ms_p50", "compete_claim_ms_p95", "compete_jobs_per_s", "compete_repeated_jobs"}, measureCompetition},
		{"crowd", []string{"crowd_server_rss_mib", "crowd_server_cpu_percent", "crowd_agents_cpu_percent"}, measureCrowd},
		{"placement", []string{"placement_ms_p50", "placement_ms_p95", "placement_read_ms_p50"}, measurePlacement},
		{"units", []string{"write_units_per_job", "write_units_per_job_shop", "write_units_per_renewal", "write_units_per_heartbeat"}, measureUnits},
		{"aws", []string{"aws_idle_install_dollars", "aws_job_dollars"}, measureAWS},
		{"idle", []string{"agent_rss_mib", "clusters_agent_rss_mib", "agent_idle_cpu_percent", "server_rss_mib", "server_idle_cpu_percent"}, measureIdle},
		{"machine", []string{"cpus", "load_average", "other_cpu_percent"}, nil},
	}
}

// bench is what all sections have in common.
type bench struct {
	report
	counts  counts
	root    string // of the repository
	work    string // folder for everything that is made
	tool    string // OpenTofu or Terraform
	profile string // folder for CPU profiles; "": none are made
	notes   io.Writer
	// countedFile is where measureAWS writes what it has counted; "": nowhere.
	countedFile string
}

func (b *bench) note(format string, args ...any) { fmt.Fprintf(b.notes, "  "+format+"\n", args...) }

// path returns a path below the repository's root.
func (b *bench) path(elem ...string) string {
	return filepath.Join(append([]string{b.root}, elem...)...)
}

// profiled runs fn, and writes a CPU profile of this process if they are wanted.
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
	force := flags.Bool("force", false, "measure, and write results, on a busy machine too")
	out := flags.String("out", "bench/results.json", "`FILE` for the results")
	smokeRun := flags.Bool("smoke", false, "run every section once, as short as it can be, on a busy machine too, and write no results")
	profile := flags.String("cpuprofile", "", "put CPU profiles of what runs in this process into `DIR` and write no results")
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
	for _, name := range []string{"bin/fairlead", "bin/fairlead-runner", "bin/fairlead-runner-clusters"} {
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
		fmt.Fprintln(stdout, "This run was as short as can be: its values show that bench works, and nothing else.")
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

// save writes the results, unless no section was measured, or other processes
// used too much of the machine, in percent, and force is not given.
func save(out string, results []Result, measured int, others float64, force bool) error {
	switch {
	case measured == 0:
		return fmt.Errorf("no section was measured: %s stays as it was", out)
	case others > maxOthers && !force:
		return fmt.Errorf("other processes used %.0f %% of the machine meanwhile: %s stays as it was (-force writes it)", others, out)
	}
	return writeResults(out, results)
}

// outcome is what became of the sections of a run.
type outcome struct {
	measured    int // sections that recorded all of their figures
	failed      []failure
	unmeasured  []string // sections that had not ended, or not begun, when the run was interrupted
	interrupted error    // why
}

type failure struct {
	section string
	err     error
}

// err returns nil if every section was measured, and names those that were not.
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

// measure runs the sections, one after the other, until ctx ends. A section that
// fails, or does not record all of its figures, leaves no figure.
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
			err = fmt.Errorf("it did not measure %s", strings.Join(missing, ", "))
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

// quiet watches the machine for a while, and refuses one that others use.
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
		return fmt.Errorf("other processes use %.0f %% of the machine: the figures would be theirs; wait, or give -force", others)
	}
	fmt.Fprintf(stderr, "other processes use %.0f %% of the machine: the figures are worse than they could be\n", others)
	return nil
}

func choose(only string) ([]section, error) {
	all := sections()
	if only == "" {
		return all, nil
	}
	var chosen []section
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no section %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
