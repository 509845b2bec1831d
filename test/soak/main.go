//go:build linux

// Command soak runs the real programs and the real tool with real faults: it kills and pauses
// processes, fills disks, cuts and delays the network, and changes clocks. Then it stops the
// faults, waits until everything has ended, and compares each deployment, state, log and lock
// with the ledger that the tools wrote themselves. `make soak` runs it;
// docs/contributing/testing.md describes it.
//
// It runs in its own network and mount namespaces. So other processes do not see it, and
// nothing remains when it ends in any way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/soak/account"
)

// insideVariable is set in the process that runs in the new namespaces. Its value is "", or the
// reason why there are no namespaces.
const insideVariable = "FAIRLEAD_SOAK_INSIDE"

func main() {
	runtime.LockOSThread() // the kernel kills a child when the thread that started it ends (Pdeathsig)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// options are the flags.
type options struct {
	duration time.Duration
	between  time.Duration
	settle   time.Duration
	seed     uint64
	out      string
	dir      string
	keep     bool
	quiet    bool
	persons  int
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.duration, "duration", 5*time.Minute, "duration of the faults")
	flags.DurationVar(&o.between, "between", 1500*time.Millisecond, "mean time between two faults")
	flags.DurationVar(&o.settle, "settle", 10*time.Minute, "longest time after the faults until everything has ended")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the faults and the deployments; 0: a random one")
	flags.StringVar(&o.out, "out", "", "`FILE` for the results in JSON")
	flags.StringVar(&o.dir, "dir", "", "`FOLDER` for everything; \"\": a temporary one")
	flags.BoolVar(&o.keep, "keep", false, "keep the folder also after success")
	flags.BoolVar(&o.quiet, "measure", true, "first measure latencies with one fault at a time, for three minutes")
	flags.IntVar(&o.persons, "installs", 8, "number of installs, without the one for the measurement")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for o.seed == 0 {
		o.seed = rand.Uint64()
	}
	return o, nil
}

// run returns the exit code: 0 for no findings, 1 if the soak cannot run, 3 for findings.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parse(args, stderr)
	if err != nil {
		return 1, err
	}
	why, inside := os.LookupEnv(insideVariable)
	if !inside {
		return isolate(ctx, o, stderr)
	}
	var isolated error
	if why != "" {
		isolated = errors.New(why)
	} else if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		isolated = fmt.Errorf("make mounts private: %w", err)
	}
	r := &report{Seed: o.seed, Duration: o.duration, Unaccounted: []string{}, Skipped: []string{}}
	err = soak(ctx, o, isolated, r, stderr)
	if err != nil {
		r.Unaccounted = append(r.Unaccounted, "the run itself: "+err.Error())
	}
	r.write(stdout)
	if o.out != "" {
		if err := r.save(o.out); err != nil {
			return 1, err
		}
	}
	if len(r.Unaccounted) > 0 {
		fmt.Fprintf(stderr, "soak: all files are kept in %s\nsoak: run it again with: make soak SEED=%d DURATION=%s\n", o.dir, o.seed, o.duration)
		return 3, nil
	}
	return 0, nil
}

// isolate runs this program again in new namespaces. If that fails, it runs the program again
// without new namespaces and passes the reason.
func isolate(ctx context.Context, o options, stderr io.Writer) (int, error) {
	var err error
	if o.dir == "" {
		// Not a deep folder, because paths of the providers' sockets must be short.
		if o.dir, err = os.MkdirTemp("", "fl-soak-"); err != nil {
			return 1, err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return 1, err
	}
	if o.out != "" {
		if o.out, err = filepath.Abs(o.out); err != nil {
			return 1, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	again := func(why string, flags uintptr) (*exec.Cmd, error) {
		cmd := exec.Command(self, "-duration", o.duration.String(), "-between", o.between.String(), "-settle", o.settle.String(),
			"-seed", fmt.Sprint(o.seed), "-out", o.out, "-dir", o.dir, fmt.Sprintf("-measure=%t", o.quiet), fmt.Sprintf("-keep=%t", o.keep), "-installs", fmt.Sprint(o.persons))
		cmd.Env = append(os.Environ(), insideVariable+"="+why)
		cmd.Stdout, cmd.Stderr = os.Stdout, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if flags&unix.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		return cmd, cmd.Start()
	}
	flags := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	if os.Geteuid() != 0 {
		flags |= unix.CLONE_NEWUSER
	}
	cmd, err := again("", flags)
	if err != nil {
		if cmd, err = again(err.Error(), 0); err != nil {
			return 1, err
		}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-done
	}
	code := cmd.ProcessState.ExitCode()
	if code == 0 && !o.keep {
		return 0, os.RemoveAll(o.dir)
	}
	return max(code, 0), nil
}

// soak is a run: start, measure, cause faults, repair them, wait for the end, compare.
func soak(ctx context.Context, o options, isolated error, r *report, stderr io.Writer) error {
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(o.dir, "bin"), 0o700); err != nil {
		return err
	}
	say("seed %d, in %s: building", o.seed, o.dir)
	p, noClock, err := build(filepath.Join(o.dir, "bin"))
	if err != nil {
		return err
	}
	w, err := newWorld(o.dir, p, isolated)
	if err != nil {
		return err
	}
	defer w.kill()
	defer w.keep(r)
	if noClock != nil {
		w.skips = append(w.skips, fmt.Sprintf("CLOCK FAULTS NOT RUN: %v", noClock))
	}
	r.Skipped = append(r.Skipped, w.skips...)
	for _, s := range w.skips {
		say("%s", s)
	}
	if err := w.start(life); err != nil {
		return err
	}
	b := newBooks()
	// The install of the measurement is used during the faults too.
	measured, err := newPerson(life, w, b, "measured", "local", "0.5", rand.New(rand.NewPCG(o.seed, 1<<33)))
	if err != nil {
		return err
	}
	if o.quiet {
		say("measuring, one fault at a time")
		m := newWatcher(life, w)
		err := w.measure(life, m, measured)
		r.Quiet = m.latencies(promises())
		if err != nil {
			return fmt.Errorf("measure: %w", err)
		}
		r.Unaccounted = append(r.Unaccounted, broken(r.Quiet)...)
	}
	persons, err := w.persons(life, o, b)
	if err != nil {
		return err
	}
	persons = append(persons, measured)
	say("causing faults for %s", o.duration)
	c, m, err := w.storm(life, o, persons)
	if err != nil {
		return err
	}
	r.Faults = c.hits
	for _, err := range c.errs {
		r.Unaccounted = append(r.Unaccounted, "a fault that was not repaired: "+err.Error())
	}
	say("no more faults; waiting until everything has ended")
	repaired := time.Now()
	settle, over := context.WithTimeout(life, o.settle)
	defer over()
	if err := w.answers(settle, time.Minute); err != nil { // the supervisor may still have to start it
		return err
	}
	finish(settle, persons, r, (*person).finish)
	r.ToRest = time.Since(repaired)
	say("pulling the states")
	if err := w.calm(); err != nil {
		return err
	}
	finish(settle, persons, r, (*person).verify)
	m.tasks.Wait()
	r.Noisy = m.latencies(nil)
	say("comparing the records with the ledger")
	return w.accountFor(life, b, r)
}

// persons creates the installs, on the runners in turn.
func (w *world) persons(ctx context.Context, o options, b *books) ([]*person, error) {
	var all []*person
	for n := range o.persons {
		h := layout[n%len(layout)]
		pace := []string{"0", "0.3", "1", "3"}[n/2%4]
		p, err := newPerson(ctx, w, b, fmt.Sprintf("install-%d", n+1), h.runner, pace, rand.New(rand.NewPCG(o.seed, 1<<32+uint64(n))))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// storm causes faults while the persons deploy.
func (w *world) storm(ctx context.Context, o options, persons []*person) (*chaos, *watcher, error) {
	log, err := os.OpenFile(w.path("logs", "faults.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	m := newWatcher(ctx, w)
	c := &chaos{w: w, log: log, watch: m, hits: map[string]int{}, busy: map[string]bool{}}
	limited, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	var work sync.WaitGroup
	for _, p := range persons {
		work.Go(func() { p.work(limited) })
	}
	c.run(limited, o.seed, o.between)
	work.Wait()
	return c, m, ctx.Err()
}

// finish calls fn for all persons at once.
func finish(ctx context.Context, persons []*person, r *report, fn func(*person, context.Context) error) {
	errs := make([]error, len(persons))
	var all sync.WaitGroup
	for i, p := range persons {
		all.Go(func() { errs[i] = fn(p, ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			r.Unaccounted = append(r.Unaccounted, err.Error())
		}
	}
}

// accountFor collects the evidence, stops all programs, and adds the findings to the report.
func (w *world) accountFor(ctx context.Context, b *books, r *report) error {
	e, jobs, err := w.collect(ctx, b)
	if err != nil {
		return err
	}
	e.Left = append(e.Left, w.stop(ctx)...)
	got := account.Check(e)
	for _, f := range got.Findings {
		r.Unaccounted = append(r.Unaccounted, f.String())
	}
	r.Unaccounted = append(r.Unaccounted, b.stuck...)
	r.Announced, r.Commands, r.Refused, r.Salvaged = got.Announced, b.commands, b.refused, w.salvaged()
	r.Deployments, r.Jobs = map[string]int{}, map[string]int{}
	for _, d := range e.Deployments {
		r.Deployments[d.State]++
	}
	for _, j := range jobs {
		what := j.Operation + " " + j.State
		if j.Reason != "" {
			what += " (" + j.Reason + ")"
		}
		r.Jobs[what]++
	}
	for _, j := range e.Jobs {
		for _, l := range j.Logs {
			r.LogBytes += int64(len(l.Text))
		}
	}
	for _, rec := range e.Ledger {
		switch rec.Kind {
		case account.Tool:
			r.Tools++
		case account.Create:
			r.Made++
		}
	}
	return nil
}

// kill kills all programs that still run.
func (w *world) kill() {
	for _, h := range w.hosts {
		h.agent.hold()
		h.killAll()
	}
	w.server.hold()
}

// keep copies the memory disks to the run's folder if there are findings, because the memory disks
// disappear when this process ends.
func (w *world) keep(r *report) {
	if len(r.Unaccounted) == 0 && r.Deployments != nil {
		return
	}
	w.kill()
	disks := []string{w.data}
	for _, h := range w.hosts {
		disks = append(disks, h.data)
	}
	for _, d := range disks {
		_ = w.free(d) // the filler need not be copied
		if err := os.CopyFS(w.path("kept", filepath.Base(d)), os.DirFS(d)); err != nil {
			r.Unaccounted = append(r.Unaccounted, fmt.Sprintf("%s was not copied completely: %v", d, err))
		}
	}
}
