// Package sim runs the whole system from a seed: the real control plane,
// its sweep and its two APIs, the real agents and the real steps, in one
// process, on a clock that moves when nobody has anything to do. Below them
// everything is a model: the engine, the queue, the log and the blobs in
// memory, the network, the machines, the tool, and the cloud that the tool
// changes. Faults befall all of them, drawn from the seed.
//
// # The scheduler
//
// A run happens in a testing/synctest bubble. Whoever crosses from real code
// into a model sleeps for a time that is drawn from the seed and the name of
// the place, to the nanosecond. So no two goroutines of ours wake at the same
// moment, the bubble's timers are the scheduler, and the order of everything
// follows from the seed. A scheduler of our own would have needed the real
// code to yield to it at each channel and each lock; synctest tells for certain
// when everybody waits, and cannot forget a goroutine.
//
// What is drawn at a place depends on nothing but the seed and the place's
// name, such as "agent-1 claim-job #7". Leaving one fault out leaves the others
// where they were, for as long as the run stays the same, and that is how
// shrinking works.
//
// A process dies at its next crossing: its goroutines end there, with their
// deferred calls and without any effect on a model. It is the weakest part of
// the simulation: what a dead process still writes to its own disk between two
// crossings is not undone. `make soak` kills real processes.
package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of Run.
type Options struct {
	Seed uint64
	Dir  string // an empty folder for the disks of the runners' machines
	// Only leaves out every fault and every action that it does not name, by the
	// names in Result.Happened; nil: none is left out.
	Only []string
	// Trace keeps what happened, line by line.
	Trace bool
}

// Result is what became of a run.
type Result struct {
	Seed       uint64
	Violations []Violation
	Happened   []string       // faults and actions, in the order in which they fired
	Faults     map[string]int // how often each kind of fault fired
	Trace      []string
	Digest     uint64 // of the trace, kept or not: two runs of a seed have the same
	Stats      Stats
}

// Stats says how much a run did.
type Stats struct {
	Deployments  int
	Jobs         int
	Requests     int
	Commits      int
	Applies      int           // tools that began to change something
	Sleepwalkers int           // of them, those whose lease had been given away while they could not hear of it
	Simulated    time.Duration // on the bubble's clock
	Settled      time.Duration // from the end of faults until every deployment had ended
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
	ended chan struct{} // closed when the run is over

	mu         sync.Mutex
	quiet      bool           // no fault fires any more
	calmed     time.Duration  // since when
	counts     map[string]int // crossings, by place
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
	servers  []*server // those that answer
	hosts    []*host
	seconds  []*person // who only look after an install
}

func newWorld(o Options) *world {
	w := &world{opt: o, start: time.Now(), counts: map[string]int{}, faults: map[string]int{}, digest: 14695981039346656037, ended: make(chan struct{})}
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

// since returns how long the run has gone on.
func (w *world) since() time.Duration { return time.Since(w.start) }

// bits draws 64 bits that depend on the seed and the name alone.
func (w *world) bits(name string) uint64 {
	h := fnv.New64a()
	for i := range 8 {
		h.Write([]byte{byte(w.opt.Seed >> (8 * i))})
	}
	h.Write([]byte(name))
	// FNV leaves the high bits of short names alike; a finalizer (splitmix64's)
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

// between draws a duration, evenly on a logarithmic scale.
func (w *world) between(name string, low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), w.unit(name)))
}

// intn draws a number in [0, n).
func (w *world) intn(name string, n int) int { return int(w.bits(name) % uint64(n)) }

// place numbers the crossings of one kind.
func (w *world) place(parts ...string) string {
	name := strings.Join(parts, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name]++
	return fmt.Sprintf("%s #%d", name, w.counts[name])
}

// fault returns which of the kinds befalls the place, or "".
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

// happens reports whether what is named takes place, and notes it if so.
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

// calm ends the time of faults.
func (w *world) calm() {
	at := w.since()
	w.mu.Lock()
	w.quiet, w.calmed = true, at
	w.mu.Unlock()
	w.note("*** faults end")
}

// note writes a line of the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%12s  ", w.since().Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range len(line) {
		w.digest = (w.digest ^ uint64(line[i])) * 1099511628211 // FNV-1a
	}
	if w.opt.Trace {
		w.trace = append(w.trace, line)
	}
}

// violate records that an invariant does not hold. The run goes on: what
// follows from it may tell more.
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
