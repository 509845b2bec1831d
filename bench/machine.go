package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is the number of units in a second of CPU time in /proc (USER_HZ). It is
// 100 on every architecture that Go supports.
const ticksPerSecond = 100

// cpuModel returns the processor's name, or "" if the system does not report it.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// loadAverage returns the load average of one minute.
func loadAverage() (float64, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	return strconv.ParseFloat(first, 64)
}

// busyTime returns the CPU time that all processes of the machine have used.
func busyTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with the unexpected line %q", line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// ownTime returns the CPU time of this process and of its descendants that have exited
// and were waited for.
func ownTime() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, err
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum, nil
}

// observer measures the CPU time of other processes since observe created it.
type observer struct {
	began     time.Time
	busy, own time.Duration
}

func observe() (observer, error) {
	busy, err := busyTime()
	if err != nil {
		return observer{}, err
	}
	own, err := ownTime()
	return observer{began: time.Now(), busy: busy, own: own}, err
}

// others returns the share of all cores, in percent, that other processes have used since
// observe. All children of this process must have exited.
func (o observer) others() (float64, error) {
	now, err := observe()
	if err != nil {
		return 0, err
	}
	total := time.Since(o.began) * time.Duration(runtime.NumCPU())
	foreign := (now.busy - o.busy) - (now.own - o.own)
	return max(0, 100*float64(foreign)/float64(total)), nil
}

// processUse is the memory and the CPU time of a process.
type processUse struct {
	rssMiB   float64
	cpu      time.Duration
	children time.Duration // CPU time of children that have exited and were waited for
}

func useOf(pid int) (processUse, error) {
	var u processUse
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				return u, fmt.Errorf("VmRSS of process %d: %w", pid, err)
			}
			u.rssMiB = kib / 1024
		}
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name in the parentheses may contain spaces
	fields := strings.Fields(after)
	for i, sum := range []*time.Duration{&u.cpu, &u.cpu, &u.children, &u.children} {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64) // utime, stime, cutime, cstime: fields 14 to 17 of proc_pid_stat(5)
		if err != nil {
			return u, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		*sum += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return u, nil
}
