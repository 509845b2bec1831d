package logship_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/runner/internal/logship"
)

// Rescue completes the log of a killed step, whatever part of it the control plane has.
func TestRescueSendsTheRestOfADeadStepsLog(t *testing.T) {
	log := bytes.Repeat([]byte("0123456789abcde\n"), 20_000) // 320 KB
	for name, arrived := range map[string]int{
		"nothing arrived": 0, "a part arrived": 1000, "all but the end arrived": len(log) - 5, "all arrived": len(log),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, log, 0o600); err != nil {
				t.Fatal(err)
			}
			there := bytes.Clone(log[:arrived])
			calls := 0
			err := logship.Rescue(t.Context(), path, func(_ context.Context, offset int64, data []byte) (int64, error) {
				calls++
				if offset > int64(len(there)) {
					return 0, &logship.OffsetError{Want: int64(len(there))}
				}
				there = append(there[:offset], data...)
				return int64(len(there)), nil
			})
			if err != nil || !bytes.Equal(there, log) {
				t.Errorf("the control plane has %d bytes, want %d: %v", len(there), len(log), err)
			}
			if calls > 3 {
				t.Errorf("Rescue sent %d requests, want at most 3", calls)
			}
		})
	}
	if err := logship.Rescue(t.Context(), filepath.Join(t.TempDir(), "none"), nil); err != nil {
		t.Errorf("Rescue without a log = %v, want nil", err)
	}
	refused := errors.New("the log has ended")
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	err := logship.Rescue(t.Context(), path, func(context.Context, int64, []byte) (int64, error) { return 0, refused })
	if !errors.Is(err, refused) {
		t.Errorf("Rescue = %v, want the refusal", err)
	}
}

// A job can replace the log's file, and can write a wrong size for it.
func TestReplacedLogFileIsNeitherSentNorSummed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"a symlink": func(path string) error { return os.Symlink(outside, path) },
		"a pipe":    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"a file as large as a disk": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				err := logship.Rescue(t.Context(), path, func(_ context.Context, offset int64, data []byte) (int64, error) {
					t.Errorf("Rescue sent %d bytes, want none", len(data))
					return offset + int64(len(data)), nil
				})
				if err == nil {
					t.Error("Rescue returned no error")
				}
				for _, size := range []int64{6, 1 << 40} {
					if _, err := logship.Sum(path, size); err == nil {
						t.Errorf("Sum of %d bytes returned no error", size)
					}
				}
			}()
			select {
			case <-over:
			case <-time.After(20 * time.Second):
				t.Error("Rescue or Sum blocks")
			}
		})
	}
}
