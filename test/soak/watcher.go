//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watcher measures the time until the control plane notices a death: until the attempt has ended
// in its records, or the job is queued again.
type watcher struct {
	w     *world
	ctx   context.Context
	tasks sync.WaitGroup

	mu    sync.Mutex
	times map[string][]time.Duration
}

// unnoticed is the time after which the watcher stops waiting.
const unnoticed = 3 * time.Minute

func newWatcher(ctx context.Context, w *world) *watcher {
	return &watcher{w: w, ctx: ctx, times: map[string][]time.Duration{}}
}

// died starts to measure the time until the death of each attempt is noticed.
func (m *watcher) died(what string, parts []part) {
	begun := time.Now()
	for _, p := range parts {
		m.tasks.Go(func() {
			if d, ok := m.noticed(p.attempt, begun); ok {
				m.add(what, d)
			}
		})
	}
}

func (m *watcher) add(what string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[what] = append(m.times[what], d)
}

// noticed waits until the attempt has ended, and returns the time since begun. It returns false
// for an attempt that reported its end before it died, because there is no death to notice.
func (m *watcher) noticed(attempt string, begun time.Time) (time.Duration, bool) {
	i := strings.LastIndexByte(attempt, '-')
	epoch, err := strconv.ParseInt(attempt[i+1:], 10, 64)
	if err != nil {
		return 0, false
	}
	for time.Since(begun) < unnoticed && m.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(m.ctx, 2*time.Second)
		j, err := m.w.client.GetJob(ctx, attempt[:i])
		cancel()
		if err == nil {
			alive := j.Epoch == epoch && (j.State == "claimed" || j.State == "running" || j.State == "canceling")
			if !alive {
				return time.Since(begun), j.State == "lost" || j.State == "queued" || j.Epoch > epoch
			}
		}
		sleep(m.ctx, 20*time.Millisecond)
	}
	return time.Since(begun), true
}

// latency is the summary of one kind of latency.
type latency struct {
	What   string        `json:"what"`
	Count  int           `json:"count"`
	Median time.Duration `json:"median_ns"`
	Worst  time.Duration `json:"worst_ns"`
	Hold   time.Duration `json:"hold_ns,omitempty"` // the promised limit; 0: none
}

func (m *watcher) latencies(hold map[string]time.Duration) []latency {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []latency
	for what, times := range m.times {
		slices.Sort(times)
		all = append(all, latency{what, len(times), times[len(times)/2], times[len(times)-1], hold[what]})
	}
	slices.SortFunc(all, func(x, y latency) int { return strings.Compare(x.What, y.What) })
	return all
}

// broken returns the latencies above their limits.
func broken(all []latency) (found []string) {
	for _, l := range all {
		if l.Hold > 0 && l.Worst > l.Hold {
			found = append(found, fmt.Sprintf("%s was noticed after %s, want at most %s", l.What, l.Worst.Round(time.Millisecond), l.Hold))
		}
	}
	return found
}
