package agentstatus

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is the prefix of the agent's own metrics.
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

// counted returns the families of counters.
func counted() []family {
	return []family{
		{pollsTotal, counterKind, "Polls for a job, by result: job, empty or error."},
		{claimedTotal, counterKind, "Claimed jobs."},
		{endedTotal, counterKind, "Ended jobs of this agent, by result: succeeded, failed or canceled, as the step reported; reported, if the step reported and shares no folder with the agent; released, if the agent released the claim; or the step's death reason: exited, killed, out-of-memory, vanished, launch-failed, image-pull, image-unavailable, image-refused, install-refused or misconfigured."},
		{failuresTotal, counterKind, "Failed requests to the control plane, by request (claim, heartbeat, report) and by kind of error: network, dns, tls, timeout, unauthorized, refused, throttled or server."},
		{renewalsTotal, counterKind, "Lease renewals of steps that reported and share a folder with the agent."},
		{lateTotal, counterKind, "Lease renewals that came after two thirds of the lease."},
		{logTotal, counterKind, "Log bytes that the control plane accepted, of steps that reported and share a folder with the agent."},
	}
}

// Metrics returns the current values of all metrics in Prometheus' text format.
func (s *Status) Metrics() []byte {
	n, now := s.look(), s.clock()
	var p page
	for _, f := range counted() {
		p.write(f, s.counters.get(f.name))
	}
	running := map[string]float64{}
	for k, i := range n.Running { // all unknown kinds share one line
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
	p.write(family{namespace + "info", gaugeKind, "1, with the agent's version, its runner and its executor as labels."}, map[string]float64{s.info(): 1})
	p.write(family{namespace + "ready", gaugeKind, "1 if the agent can take jobs, as /readyz reports; else 0."}, one(ready))
	p.write(family{namespace + "mode", gaugeKind, "1, with the customer's mode as label: enabled, paused, draining or disabled."}, map[string]float64{labelled("mode", n.Customer): 1})
	wanted := map[string]float64{}
	if n.Wanted != "" {
		wanted[labelled("version", n.Wanted)] = 1
	}
	p.write(family{namespace + "wanted_info", gaugeKind, "1, with the version that the control plane wants for this agent as label; absent if it accepts any version."}, wanted)
	p.write(family{namespace + "capacity", gaugeKind, "Slots: the largest number of running jobs."}, one(float64(n.Capacity)))
	p.write(family{namespace + "jobs_running", gaugeKind, "Jobs whose steps run or are being started."}, running)
	p.write(family{namespace + "warm_steps", gaugeKind, "Steps that were started ahead and wait for a job."}, one(float64(n.Warm)))
	p.write(family{namespace + "sessions_total", counterKind, "Sessions that the agent opened with the control plane."}, one(float64(n.Sessions)))
	p.write(family{namespace + "session_age_seconds", gaugeKind, "Age of the current session with the control plane; absent without a session."}, age)
	s.process(&p)
	return bytes.Clone(p.b.Bytes())
}

// process writes the metrics that dashboards expect of every program, under the usual names.
func (s *Status) process(p *page) {
	p.write(family{"process_start_time_seconds", gaugeKind, "Start time of the process, in seconds since the Unix epoch."}, one(float64(s.since.UnixMilli())/1e3))
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err == nil {
		p.write(family{"process_cpu_seconds_total", counterKind, "CPU time of the agent's process, in seconds."}, one(time.Duration(u.Utime.Nano()+u.Stime.Nano()).Seconds()))
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil { // only Linux has this file
		if f := bytes.Fields(b); len(f) > 1 {
			if pages, err := strconv.ParseFloat(string(f[1]), 64); err == nil {
				p.write(family{"process_resident_memory_bytes", gaugeKind, "Resident memory of the agent's process, in bytes."}, one(pages*float64(os.Getpagesize())))
			}
		}
	}
	p.write(family{"go_goroutines", gaugeKind, "Goroutines of the agent's process."}, one(float64(runtime.NumGoroutine())))
}
