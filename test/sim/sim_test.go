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
)

// What `make simulate` gives.
var (
	firstSeed     = flag.Uint64("seed", 0, "the first `seed`")
	seedCount     = flag.Uint64("seeds", 0, "how many seeds; 0: 1,000, or 100 with -short")
	only          = flag.String("only", "", "leave out every fault and action but these, separated by semicolons; and print the trace")
	wholeFile     = flag.String("report", "", "`file` for a report of the runs in JSON")
	mutantsWithin = flag.Int("within", 0, "plant only mistakes that are found within so many `seeds`; 0: all")
	keepGoing     = flag.Bool("all", false, "go on after a seed that fails, without shrinking")
)

// The variable that makes a process of this test binary a worker.
const workerVariable = "FAIRLEAD_SIMULATE"

// order is what a worker is to do.
type order struct {
	Seeds  []uint64 `json:"seeds"`
	Only   []string `json:"only,omitempty"`
	Trace  bool     `json:"trace,omitempty"`
	Shrink bool     `json:"shrink,omitempty"`
	Until  bool     `json:"until,omitempty"` // stop at the first seed that fails
}

// TestMain lets a process be a worker. Workers have one CPU each: what runs
// between two crossings is then the same each time.
func TestMain(m *testing.M) {
	if israce.On {
		// A run is one thread's by its nature, and ten times as slow when watched.
		fmt.Println("skipped under the race detector: make test runs all of this package without it")
		os.Exit(0)
	}
	if os.Getenv(workerVariable) == "" {
		flag.Parse()
		if *seedCount == 0 {
			*seedCount = 1000
			if testing.Short() {
				*seedCount = 100
			}
		}
		os.Exit(m.Run())
	}
	flag.Set("test.run", "^TestWorker$")
	os.Exit(m.Run())
}

// TestWorker does what its process was told to do.
func TestWorker(t *testing.T) {
	raw := os.Getenv(workerVariable)
	if raw == "" {
		t.Skip("not a test: the others start it, in a process of its own")
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

// inBubble runs a seed. Randomness that the real code takes from crypto/rand,
// for keys and nonces, comes from the seed too.
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

// diskRoot is a folder in memory if there is one: the machines' disks are
// synced now and then, and nothing depends on it here.
func diskRoot() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// worker runs an order in a process of its own and gives each result to got.
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

// simulate runs seeds in as many processes as there are CPUs. The first that
// fails ends it, unless all are wanted.
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

// TestNothingIsLostStrandedOrRepeated is the promise, searched for a
// counter-example: the whole system under every fault that we could think of.
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
	// A fault that never fired is a mistake of the simulator's.
	if *seedCount >= 500 {
		for _, k := range FaultKinds() {
			if sum.Faults[k] == 0 {
				t.Errorf("the fault %s has not fired in %d seeds", k, sum.Seeds)
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

// TestASeedIsARun: what a seed finds can be found again.
func TestASeedIsARun(t *testing.T) {
	seen := map[uint64]uint64{}
	o := order{Seeds: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	for range 2 {
		err := worker(t, self(t), o, func(r Result) {
			if before, ok := seen[r.Seed]; ok && before != r.Digest {
				t.Errorf("seed %d is another run the second time", r.Seed)
			}
			seen[r.Seed] = r.Digest
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestShrink leaves what the failure takes, and nothing else.
func TestShrink(t *testing.T) {
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

// summary is what many runs came to.
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
	s.Stats.Sleepwalkers += r.Stats.Sleepwalkers
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
	fmt.Fprintf(&b, "all had ended %s after the last fault at the latest; %d tools changed something after their lease was given away while they slept\n",
		s.Longest.Round(time.Second), s.Stats.Sleepwalkers)
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
