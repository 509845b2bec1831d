//go:build linux

package faultstest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Disk is a small file system of its own.
type Disk struct {
	Path string
	t    testing.TB
}

// NewDisk mounts a disk of the size, in bytes; it is unmounted when the test
// ends. Who may not mount skips the test.
func NewDisk(t testing.TB, size int64, readOnly bool) *Disk {
	t.Helper()
	d := &Disk{Path: filepath.Join(t.TempDir(), "disk"), t: t}
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	if readOnly {
		flags = syscall.MS_RDONLY
	}
	if err := syscall.Mount("fairlead-test", d.Path, "tmpfs", flags, "mode=0700,size="+strconv.FormatInt(size, 10)); err != nil {
		t.Skipf("DISK FAULTS NOT TESTED: this user may not mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.Path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.Path, err)
		}
	})
	return d
}

// Fill takes all the space that is left.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		block := make([]byte, size)
		for {
			if _, err = f.Write(block); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

// Free gives back what Fill took.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }
