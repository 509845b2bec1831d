// Package sim is the simulator. It runs the whole system in one process, and a number, the
// seed, determines the run. The control plane, its sweep and its two APIs, the agents and
// the steps are the real code. They use a clock that advances only when every goroutine
// waits. Everything that this code uses is a model: the engine, the queue, the log and the
// blobs, which are in memory, the network, the machines, the tool, and the cloud that the
// tool changes. The seed decides which faults occur in the models.
//
// # The scheduler
//
// A run is in a testing/synctest bubble. A crossing is a call of a model from real code. At
// each crossing, the goroutine sleeps for a time that depends on the seed and the name of
// the place, with a resolution of a nanosecond. So no two goroutines of the simulator wake
// at the same moment. The bubble's timers are the scheduler, and the seed determines the
// order of all events. With a separate scheduler, the real code would have to yield at each
// channel and each lock. synctest needs no such change: it knows when all goroutines wait.
//
// A value that is drawn at a place depends only on the seed and the place's name, such as
// "agent-1 claim-job #7". If a run leaves out one fault, each other fault occurs at the
// same place, as long as the events before it are the same. Shrinking depends on this.
//
// A killed process dies at its next crossing: its goroutines end there. The deferred calls
// of these goroutines run, and have no effect on a model. This is the weakest part of the
// simulation: between the kill and the next crossing, a killed process can still write to
// its own disk. `make soak` kills real processes.
package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are the options of Run.
type Options struct {
	Seed uint64
	Dir  string // an empty folder for the disks of the runners' hosts
	// Only has the names of the faults and actions that may occur, in the form of
	// Result.Happened; nil: all faults and actions.
	Only []string
	// Trace keeps the events as lines in Result.Trace.
	Trace bool
}

// Result is the result of a run.
type Result struct {
	Seed       uint64
	Violations []Violation
	Happened   []string       // names of faults and actions, in order
	Faults     map[string]int // number of faults by kind
	Trace      []string
	Digest     uint64 // sum of the hashes of the trace's lines, also without Options.Trace; equal for all runs of a seed
	Stats      Stats
}

// Stats has counts and durations of a run.
type Stats struct {
	Deployments int
	Jobs        int
	Requests    int
	Commits     int
	Applies     int           // tools that started to change resources
	Unleased    int           // how many of these tools had lost their lease and could not know this
	Simulated   time.Duration // duration on the bubble's clock
	Settled     time.Duration // time from the end of the faults until every deployment ended
}

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant string // stable, kebab-case
	Text      string
	At        time.Duration
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %s: %s", v.Invariant, v.At.Round(time.Millisecond), v.Text)
}

// world is one run.
type world struct {
	opt   Options
	only  map[string]bool
	start time.Time
	plan  scenario
	ended chan struct{} // closed when the run ends

	mu         sync.Mutex
	quiet      bool           // no faults occur: before the end of the setup, and after the faults
	calmed     time.Duration  // time at which quiet became true
	counts     map[string]int // number of crossings, by place
	violations []Violation
	happened   []string
	faults     map[string]int
	trace      []string
	digest     uint64
	stats      Stats

	*ledger
	*backing
	apiToken string
	net      *network
	servers  []*server // the servers that answer
	hosts    []*host
	sweepsAt time.Duration       // no sweep runs before this time
	seconds  []*person           // second persons of installs, who only react to waiting plans
	clusters map[string]*cluster // by install and component
	pods     map[string]*pod     // agents in sandboxes, by install
}

func newWorld(o Options) *world {
	w := &world{opt: o, start: time.Now(), counts: map[string]int{}, faults: map[string]int{}, ended: make(chan struct{}), clusters: map[string]*cluster{}, pods: map[string]*pod{}}
	if o.Only != nil {
		w.only = map[string]bool{}
		for _, name := range o.Only {
			w.only[name] = true
		}
	}
	w.plan = draw(w)
	w.ledger = newLedger(w)
	w.backing = newBacking(w)
	w.net = newNetwork(w)
	return w
}

// since returns the duration of the run so far.
func (w *world) since() time.Duration { return time.Since(w.start) }

// bits draws 64 bits that depend only on the seed and the name.
func (w *world) bits(name string) uint64 {
	h := fnv.New64a()
	for i := range 8 {
		h.Write([]byte{byte(w.opt.Seed >> (8 * i))})
	}
	h.Write([]byte(name))
	// FNV hashes of short names have similar high bits. The finalizer of splitmix64
	// spreads them.
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// unit draws a number in [0, 1).
func (w *world) unit(name string) float64 { return float64(w.bits(name)>>11) / (1 << 53) }

// between draws a duration between low and high, uniformly on a logarithmic scale.
func (w *world) between(name string, low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), w.unit(name)))
}

// intn draws a number in [0, n).
func (w *world) intn(name string, n int) int { return int(w.bits(name) % uint64(n)) }

// place returns the name of the next crossing of a kind. The name has the parts, and the number
// of crossings with these parts so far.
func (w *world) place(parts ...string) string {
	name := strings.Join(parts, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name]++
	return fmt.Sprintf("%s #%d", name, w.counts[name])
}

// fault returns the kind of fault that occurs at the place: one of the parameter kinds, or "" if
// no fault occurs.
func (w *world) fault(place string, kinds ...string) string {
	u := w.unit("fault " + place)
	for _, k := range kinds {
		rate := w.plan.rates[k]
		if u >= rate {
			u -= rate
			continue
		}
		if w.happens(k + " @ " + place) {
			w.count(k)
			return k
		}
		return ""
	}
	return ""
}

// happens reports whether the named fault occurs. If so, it records the name.
func (w *world) happens(name string) bool {
	w.mu.Lock()
	if w.quiet || w.only != nil && !w.only[name] {
		w.mu.Unlock()
		return false
	}
	w.happened = append(w.happened, name)
	w.mu.Unlock()
	w.note("*** %s", name)
	return true
}

func (w *world) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[kind]++
}

// calm ends the faults.
func (w *world) calm() {
	at := w.since()
	w.mu.Lock()
	w.quiet, w.calmed = true, at
	w.mu.Unlock()
	w.note("*** faults end")
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%12s  ", w.since().Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	io.WriteString(h, line)
	w.mu.Lock()
	defer w.mu.Unlock()
	// Goroutines that wake up at the same virtual time run in any order on a busy machine. A sum does
	// not depend on the order of their lines; each line has its time.
	w.digest += h.Sum64()
	if w.opt.Trace {
		w.trace = append(w.trace, line)
	}
}

// violate records a violation of an invariant. The run continues, because the consequences of
// the violation can help to find its cause.
func (w *world) violate(invariant, format string, args ...any) {
	v := Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...), At: w.since()}
	w.mu.Lock()
	if len(w.violations) < 20 {
		w.violations = append(w.violations, v)
	}
	w.mu.Unlock()
	w.note("!!! %s: %s", invariant, v.Text)
}

func (w *world) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Simulated = w.since()
	return Result{Seed: w.opt.Seed, Violations: slices.Clone(w.violations), Happened: slices.Clone(w.happened), Faults: w.faults,
		Trace: w.trace, Digest: w.digest, Stats: w.stats}
}
