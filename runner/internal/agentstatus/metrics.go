package agentstatus

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// namespace begins the names of the agent's own metrics.
const namespace = "fairlead_runner_"

// The names of counters.
const (
	pollsTotal    = namespace + "polls_total"
	claimedTotal  = namespace + "jobs_claimed_total"
	endedTotal    = namespace + "jobs_ended_total"
	failuresTotal = namespace + "failures_total"
	renewalsTotal = namespace + "lease_renewals_total"
	lateTotal     = namespace + "lease_renewals_late_total"
	logTotal      = namespace + "log_shipped_bytes_total"
)

// counted are the families of counters.
func counted() []family {
	return []family{
		{pollsTotal, counterKind, "Questions for work, by what came of them: job, empty or error."},
		{claimedTotal, counterKind, "Jobs that were claimed."},
		{endedTotal, counterKind, "Jobs that ended here, by result: succeeded, failed or canceled, as the step has reported; reported, where the step shares no folder with the agent; released, if the job was given back; or why the step died: exited, killed, out-of-memory, vanished, launch-failed, image-pull or misconfigured."},
		{failuresTotal, counterKind, "Requests to the control plane that failed, by what they were for (claim, heartbeat, report) and by kind: network, dns, tls, timeout, unauthorized, refused, throttled or server."},
		{renewalsTotal, counterKind, "Renewals of jobs' leases, of steps that share a folder with the agent and have reported."},
		{lateTotal, counterKind, "Those of the renewals that came when two thirds of the lease were over."},
		{logTotal, counterKind, "Bytes of jobs' logs that have arrived at the control plane, of steps that share a folder with the agent and have reported."},
	}
}

// Metrics returns what there is to be known now, in Prometheus' text format.
func (s *Status) Metrics() []byte {
	n, now := s.look(), s.clock()
	var p page
	for _, f := range counted() {
		p.write(f, s.counters.get(f.name))
	}
	running := map[string]float64{}
	for k, i := range n.Running { // kinds that are not known have one line
		running[labelled(k.labels()...)] += float64(i)
	}
	ready := 1.0
	if s.unready() != "" {
		ready = 0
	}
	age := map[string]float64{}
	if !n.SessionSince.IsZero() {
		age = one(now.Sub(n.SessionSince).Seconds())
	}
	p.write(family{namespace + "info", gaugeKind, "1, with the version of the agent, its runner, and what starts its steps."}, map[string]float64{s.info(): 1})
	p.write(family{namespace + "ready", gaugeKind, "Whether the agent can take work, as /readyz says: 1 or 0."}, one(ready))
	p.write(family{namespace + "mode", gaugeKind, "1, with the mode that the customer has set: enabled, paused, draining or disabled."}, map[string]float64{labelled("mode", n.Customer): 1})
	wanted := map[string]float64{}
	if n.Wanted != "" {
		wanted[labelled("version", n.Wanted)] = 1
	}
	p.write(family{namespace + "wanted_info", gaugeKind, "1, with the version that the control plane wants of this agent; absent if any will do."}, wanted)
	p.write(family{namespace + "capacity", gaugeKind, "Most jobs at once."}, one(float64(n.Capacity)))
	p.write(family{namespace + "jobs_running", gaugeKind, "Jobs whose steps run, or are being started."}, running)
	p.write(family{namespace + "sessions_total", counterKind, "Sessions that were made with the control plane."}, one(float64(n.Sessions)))
	p.write(family{namespace + "session_age_seconds", gaugeKind, "Age of the session with the control plane; absent if there is none."}, age)
	s.process(&p)
	return bytes.Clone(p.b.Bytes())
}

// process writes what dashboards expect of any program, under the usual names.
func (s *Status) process(p *page) {
	p.write(family{"process_start_time_seconds", gaugeKind, "When the process was started, since the epoch."}, one(float64(s.since.UnixMilli())/1e3))
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err == nil {
		p.write(family{"process_cpu_seconds_total", counterKind, "Processor time of the agent itself."}, one(time.Duration(u.Utime.Nano()+u.Stime.Nano()).Seconds()))
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil { // elsewhere than on Linux nobody says it
		if f := bytes.Fields(b); len(f) > 1 {
			if pages, err := strconv.ParseFloat(string(f[1]), 64); err == nil {
				p.write(family{"process_resident_memory_bytes", gaugeKind, "Memory of the agent itself."}, one(pages*float64(os.Getpagesize())))
			}
		}
	}
	p.write(family{"go_goroutines", gaugeKind, "Goroutines of the agent."}, one(float64(runtime.NumGoroutine())))
}
