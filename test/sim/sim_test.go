package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/tools/israce"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// The flags of `make simulate`.
var (
	firstSeed      = flag.Uint64("seed", 0, "the first `seed`")
	seedCount      = flag.Uint64("seeds", 0, "number of seeds; 0: 1,000, or 50 with -short")
	only           = flag.String("only", "", "allow only these faults and actions, separated by semicolons, and print the trace")
	wholeFile      = flag.String("report", "", "`file` for a report of the runs in JSON")
	mistakesWithin = flag.Int("within", 0, "plant only mistakes that this number of `seeds` finds; 0: all")
	keepGoing      = flag.Bool("all", false, "continue after a failed seed, without shrinking")
)

// workerVariable is the environment variable that makes a process of this test binary a worker.
// Its value is the worker's order, as JSON.
const workerVariable = "FAIRLEAD_SIMULATE"

// order is the work of a worker process.
type order struct {
	Seeds  []uint64 `json:"seeds"`
	Only   []string `json:"only,omitempty"`
	Trace  bool     `json:"trace,omitempty"`
	Shrink bool     `json:"shrink,omitempty"`
	Until  bool     `json:"until,omitempty"` // stop at the first failed seed
}

// TestMain runs the tests, or a worker. A worker has one CPU, so that the code between two
// crossings runs in the same order each time.
func TestMain(m *testing.M) {
	if israce.On {
		// A run uses only one thread. The race detector makes a run ten times as slow.
		fmt.Println("skipped with the race detector: make test runs this package without it")
		os.Exit(0)
	}
	if os.Getenv(workerVariable) == "" {
		flag.Parse()
		if *seedCount == 0 {
			*seedCount = 1000
			if testing.Short() {
				*seedCount = 50
			}
		}
		os.Exit(m.Run())
	}
	flag.Set("test.run", "^TestWorker$")
	os.Exit(m.Run())
}

// TestWorker executes the order of a worker process.
func TestWorker(t *testing.T) {
	raw := os.Getenv(workerVariable)
	if raw == "" {
		t.Skip("not a test: other tests start it in a separate process")
	}
	var o order
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		t.Fatal(err)
	}
	out := json.NewEncoder(os.NewFile(3, "results"))
	for _, seed := range o.Seeds {
		run := func(only []string, trace bool) Result {
			return inBubble(t, Options{Seed: seed, Only: only, Trace: trace})
		}
		r := run(o.Only, o.Trace)
		if o.Shrink && len(r.Violations) > 0 {
			r = Shrink(r, func(only []string) Result { return run(only, false) })
			r = run(r.Happened, true)
		}
		if err := out.Encode(r); err != nil {
			t.Fatal(err)
		}
		if o.Until && len(r.Violations) > 0 {
			return
		}
	}
}

// inBubble runs a seed in a synctest bubble. The seed also determines the keys and nonces that
// the real code takes from crypto/rand.
func inBubble(t *testing.T, o Options) (r Result) {
	dir, err := os.MkdirTemp(diskRoot(), "fairlead-simulation")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	t.Run(fmt.Sprint("seed ", o.Seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, o.Seed)
		synctest.Test(t, func(*testing.T) { r = Run(o) })
	})
	return r
}

// diskRoot returns a folder in memory, or "" if this machine has no such folder. The real code
// sometimes syncs the hosts' files, which takes time on a disk and is not needed here.
func diskRoot() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// worker runs an order in a separate process, and calls the function got with each result.
func worker(t *testing.T, binary string, o order, got func(Result)) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "-test.timeout=0")
	cmd.Env = append(os.Environ(), workerVariable+"="+string(raw), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=250MiB")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &output, &output, []*os.File{w}
	if err := cmd.Start(); err != nil {
		w.Close()
		return err
	}
	w.Close()
	done := 0
	in := bufio.NewReader(r)
	for dec := json.NewDecoder(in); ; done++ {
		var res Result
		if dec.Decode(&res) != nil {
			break
		}
		got(res)
	}
	if err := cmd.Wait(); err != nil {
		seed := "none"
		if done < len(o.Seeds) {
			seed = fmt.Sprint(o.Seeds[done])
		}
		return fmt.Errorf("a worker ended with %w at seed %s:\n%s", err, seed, output.Bytes()[:min(output.Len(), 20000)])
	}
	return nil
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// simulate runs seeds in one process per CPU. It stops after the first failed seed, unless the
// parameter all is true.
func simulate(t *testing.T, binary string, first, count uint64, all bool, got func(Result)) error {
	var mu sync.Mutex
	var failure error
	next, failed := first, false
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for {
				mu.Lock()
				if next >= first+count || failed && !all || failure != nil {
					mu.Unlock()
					return
				}
				o := order{Until: !all}
				for range min(20, first+count-next) {
					o.Seeds = append(o.Seeds, next)
					next++
				}
				mu.Unlock()
				err := worker(t, binary, o, func(r Result) {
					mu.Lock()
					defer mu.Unlock()
					failed = failed || len(r.Violations) > 0
					got(r)
				})
				if err != nil {
					mu.Lock()
					failure = err
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return failure
}

// TestNothingIsLostStrandedOrRepeated searches for a violation of an invariant: it runs the whole
// system with all kinds of faults.
func TestNothingIsLostStrandedOrRepeated(t *testing.T) {
	if *only != "" {
		replay(t)
		return
	}
	began := time.Now()
	sum := summary{Faults: map[string]int{}, Violations: map[string]int{}}
	var failed []Result
	err := simulate(t, self(t), *firstSeed, *seedCount, *keepGoing, func(r Result) {
		sum.add(r)
		if len(r.Violations) > 0 {
			failed = append(failed, r)
		}
	})
	sum.Seconds = time.Since(began).Seconds()
	t.Logf("%s", sum)
	if *wholeFile != "" {
		b, _ := json.MarshalIndent(sum, "", "  ")
		if err := os.WriteFile(*wholeFile, append(b, '\n'), 0o644); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(failed, func(a, b Result) int { return int(int64(a.Seed) - int64(b.Seed)) })
	if *keepGoing {
		for _, r := range failed {
			t.Errorf("seed %d: %s", r.Seed, r.Violations[0])
		}
		return
	}
	if len(failed) > 0 {
		if err := worker(t, self(t), order{Seeds: []uint64{failed[0].Seed}, Shrink: true}, func(r Result) { t.Error(Report(r)) }); err != nil {
			t.Error(err)
		}
		return
	}
	// In this many runs, each kind of fault must occur.
	if *seedCount >= 500 {
		for _, k := range FaultKinds() {
			if sum.Faults[k] == 0 {
				t.Errorf("the fault %s did not occur in %d seeds", k, sum.Seeds)
			}
		}
	}
}

func replay(t *testing.T) {
	var names []string
	for _, n := range strings.Split(*only, ";") {
		names = append(names, strings.TrimSpace(n))
	}
	err := worker(t, self(t), order{Seeds: []uint64{*firstSeed}, Only: names, Trace: true}, func(r Result) {
		if len(r.Violations) > 0 {
			t.Error(Report(r))
			return
		}
		t.Log(Report(r))
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSameSeedIsTheSameRun compares the digests of two runs of a seed, so that a failure can be
// repeated.
func TestSameSeedIsTheSameRun(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	seen := map[uint64]uint64{}
	o := order{Seeds: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	for range 2 {
		err := worker(t, self(t), o, func(r Result) {
			if before, ok := seen[r.Seed]; ok && before != r.Digest {
				t.Errorf("seed %d has another digest in the second run", r.Seed)
			}
			seen[r.Seed] = r.Digest
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestShrinkKeepsOnlyTheCause shrinks 40 faults to the two faults that cause the violation.
func TestShrinkKeepsOnlyTheCause(t *testing.T) {
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprint("fault ", i))
	}
	again := func(only []string) Result {
		r := Result{Happened: only}
		if slices.Contains(only, "fault 3") && slices.Contains(only, "fault 31") {
			r.Violations = []Violation{{Invariant: "it"}}
		} else {
			r.Violations = []Violation{{Invariant: "another"}}
		}
		return r
	}
	got := Shrink(Result{Happened: all, Violations: []Violation{{Invariant: "it"}}}, again)
	if !slices.Equal(got.Happened, []string{"fault 3", "fault 31"}) {
		t.Errorf("shrunk to %v", got.Happened)
	}
}

// summary is the result of many runs.
type summary struct {
	Seeds      int            `json:"seeds"`
	Seconds    float64        `json:"seconds"`
	CPUs       int            `json:"cpus"`
	Stats      Stats          `json:"stats"`
	Longest    time.Duration  `json:"longest_settling"`
	Faults     map[string]int `json:"faults"`
	Violations map[string]int `json:"violations"`
}

func (s *summary) add(r Result) {
	s.Seeds++
	s.CPUs = runtime.NumCPU()
	s.Stats.Deployments += r.Stats.Deployments
	s.Stats.Jobs += r.Stats.Jobs
	s.Stats.Requests += r.Stats.Requests
	s.Stats.Commits += r.Stats.Commits
	s.Stats.Applies += r.Stats.Applies
	s.Stats.Unleased += r.Stats.Unleased
	s.Stats.Simulated += r.Stats.Simulated
	s.Stats.Settled += r.Stats.Settled
	s.Longest = max(s.Longest, r.Stats.Settled)
	for k, n := range r.Faults {
		s.Faults[k] += n
	}
	for _, v := range r.Violations {
		s.Violations[v.Invariant]++
	}
}

func (s summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds in %.0f s (%.0f a minute on %d CPUs): %d deployments, %d jobs, %d applies, %d requests, %d commits in %s of simulated time\n",
		s.Seeds, s.Seconds, float64(s.Seeds)/s.Seconds*60, s.CPUs, s.Stats.Deployments, s.Stats.Jobs, s.Stats.Applies, s.Stats.Requests, s.Stats.Commits,
		s.Stats.Simulated.Round(time.Hour))
	fmt.Fprintf(&b, "all ended at most %s after the last fault; %d tools changed something after they had lost their lease without knowing it\n",
		s.Longest.Round(time.Second), s.Stats.Unleased)
	total := 0
	for _, k := range FaultKinds() {
		fmt.Fprintf(&b, "  %-28s %8d\n", k, s.Faults[k])
		total += s.Faults[k]
	}
	fmt.Fprintf(&b, "  %-28s %8d\n", "all faults", total)
	for k, n := range s.Violations {
		fmt.Fprintf(&b, "  VIOLATED %s: %d\n", k, n)
	}
	return b.String()
}
