//go:build linux

package main

import (
	"encoding/binary"
	"os"
	"sync"
	"time"
)

// clock is the offset of a machine's wall clock. It does not change timers, as on a real machine
// whose clock is set.
type clock struct {
	path string
	mu   sync.Mutex
	by   time.Duration
}

func newClock(path string) (*clock, error) {
	c := &clock{path: path}
	return c, c.set(0)
}

// set sets the offset to d. A program that has mapped the file sees the eight bytes change at
// once.
func (c *clock) set(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(d))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		return err
	}
	c.by = d
	return nil
}

func (c *clock) wrongBy() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by
}
