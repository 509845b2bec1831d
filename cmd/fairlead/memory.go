//go:build !light

package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// serverMemory is the memory in bytes that a server may use before the garbage collector runs more often than serverGC asks for. The
	// code of the program and SQLite's caches come on top: about 60 MiB.
	serverMemory = 72 << 20
	// limitEvery is the time between two calculations of the limit.
	limitEvery = 10 * time.Second
)

// limitMemory keeps the garbage of a server small while the server is small, until ctx ends. With serverGC alone, a heap of 50 MiB would
// grow to 250 MiB. A fixed limit would make a server with more live memory than that collect garbage all the time, so the limit follows
// the live memory.
func limitMemory(ctx context.Context) {
	tick := time.NewTicker(limitEvery)
	defer tick.Stop()
	for {
		debug.SetMemoryLimit(memoryLimit(readMemory()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// memoryLimit returns the limit for a heap with live bytes, beside which the process has fixed bytes, such as stacks. The heap may always
// double between two collections, as with Go's defaults.
func memoryLimit(live, fixed int64) int64 { return max(serverMemory, fixed+2*live) }

// readMemory returns the bytes that the last garbage collection found in use, and those that the Go runtime has beside the heap.
func readMemory() (live, fixed int64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	fixed = int64(samples[1].Value.Uint64())
	for _, s := range samples[2:] {
		fixed -= int64(s.Value.Uint64())
	}
	return int64(samples[0].Value.Uint64()), fixed
}
